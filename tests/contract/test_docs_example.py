"""The algorithm in docs/writing-an-algorithm.md runs as it is written there."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from rl_training.algorithms import registry
from rl_training.algorithms.definition import Algorithm
from rl_training.api import Callback, managed_class
from rl_training.config import offline_settings, settings
from rl_training.engine.phases import Phase
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.workflows import evaluate_checkpoint

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "writing-an-algorithm.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
STEPS = 120


@pytest.fixture
def ddpg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The page's first example as a module of another package, under the name that it has in the registry."""
    package = tmp_path / "packages" / "my_rl"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "ddpg.py").write_text(EXAMPLES[0], encoding="utf-8")
    monkeypatch.syspath_prepend(package.parent)
    for module in ("my_rl", "my_rl.ddpg"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(registry.ALGORITHMS, "ddpg", "my_rl.ddpg:DDPG")
    return "ddpg"


class StopHalfWay(Callback):
    def on_step(self, session: Any) -> bool:
        return session.step < STEPS // 2


def final_agent(run_dir: Path, seed: int = 0) -> dict[str, Any]:
    return load_file(run_dir / "agents" / f"seed_{seed}_final.safetensors")


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in expected if not np.array_equal(found[name], expected[name])] == []


def test_it_is_trained_resumed_and_evaluated(ddpg: str, tmp_path: Path, quick_config: Callable[..., Any]) -> None:
    def config(folder: str, **changes: Any) -> Any:
        return quick_config(ddpg, tmp_path / folder, total_timesteps=STEPS, **changes)

    whole = train(config("whole"), show_progress=False)
    assert whole.metrics["gradient_steps"] == STEPS - 20
    stopped = train(config("cut"), callbacks=StopHalfWay(), show_progress=False)
    resumed = resume_training(stopped.run_dir, show_progress=False)
    assert_equal(final_agent(resumed.run_dir), final_agent(whole.run_dir))
    together = train(config("seeds", seeds=(0, 1)), show_progress=False)
    assert_equal(final_agent(together.run_dir), final_agent(whole.run_dir))
    found = evaluate_checkpoint(resumed.checkpoint_path, num_episodes=2)
    assert found["eval_episodes"] == 2 and found["eval_return_mean"] < 0


def test_it_has_a_managed_class(ddpg: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's second example, with fewer steps."""
    monkeypatch.chdir(tmp_path)
    small = "total_timesteps=200, learning_starts=20, batch_size=8, hidden_sizes=(16, 16), device='cpu'"
    small += ", eval_episodes=1, video=False, report=False"
    shortened = EXAMPLES[1].replace("total_timesteps=20_000", small)
    assert small in shortened
    names: dict[str, Any] = {}
    exec(shortened, names)
    agent = names["agent"]
    assert agent.evaluate(num_episodes=1)["eval_episodes"] == 1 and agent.config.algo_kwargs["exploration_noise"] == 0.2
    loaded = managed_class("ddpg").load(agent.save(tmp_path / "ddpg.safetensors"))
    assert np.array_equal(loaded.predict(np.zeros(3)), agent.predict(np.zeros(3)))


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, by column."""
    lines = PAGE.partition(f"\n## {heading}\n")[2].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


def test_its_tables_and_signatures_are_those_of_the_code() -> None:
    for base, _, adds in table("Settings"):
        name = base.strip("`")
        cls = getattr(settings if hasattr(settings, name) else offline_settings, name)
        inherited = {field.name for parent in cls.__mro__[1:-1] for field in dataclasses.fields(parent)}
        own = {field.name for field in dataclasses.fields(cls)} - inherited
        named = set(re.findall(r"`(\w+)`", adds))
        assert named <= own, f"{base}: {named - own}"
        assert "…" in adds or named == own, f"{base}: {own - named}"
    for hooks, _, _ in table("What to write"):
        for name, arguments in re.findall(r"`(\w+)\(([\w, ]*)\)`", hooks):
            assert ", ".join(inspect.signature(getattr(Algorithm(), name)).parameters) == arguments, name
    for names, default, _ in table("What the class declares"):
        for name in re.findall(r"`(\w+)`", names):
            assert name in Algorithm.__annotations__, name
            if default.startswith("`"):
                value = getattr(Algorithm, name)
                assert default == f"`{getattr(value, '__name__', value)}`".replace("'", '"'), name
    arguments = ", ".join(
        field.name if field.default is dataclasses.MISSING else f"{field.name}={field.default}"
        for field in dataclasses.fields(Phase)
    )
    assert f"`Phase({arguments})`" in PAGE
