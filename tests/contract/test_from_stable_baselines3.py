"""docs/from-stable-baselines3.md: every snippet of rl_training runs, with fewer steps, and does what the page says.

The numbers of steps in a snippet are divided, and defaults of the config are smaller; the library is as it is. The
snippets of Stable-Baselines3, which is not installed here, are parsed.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.cli.main import main
from rl_training.config.foreign_names import OURS
from rl_training.config.train_config import TrainConfig

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "from-stable-baselines3.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## (\d+)\. ([^\n]+)\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(?:python)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAIRS = {int(number): (title, BLOCK.findall(body)) for number, title, body in SECTION.findall(PAGE)}
COMMANDS = 31  # the pair of command lines; all others are Python
FEWER_STEPS = 90
PACKAGES = {13: ("tensorboard", "pandas"), 14: ("wandb",), 21: ("ale_py",)}
# By default a snippet makes one evaluation, at the end, and no video or report.
DEFAULTS = {"eval_episodes": 1, "eval_interval": 10**6, "video": False, "report": False, "compile": "off"}
DEFAULTS["log_interval"] = 1000 // FEWER_STEPS


def shortened(code: str) -> str:
    """The code with every number of thousands divided by `FEWER_STEPS`."""
    return re.sub(r"(\d+)_?000(?!\d)", lambda found: str(int(f"{found[1]}000") // FEWER_STEPS), code)


STEPS = int(shortened("10_000"))


@pytest.fixture(scope="module", autouse=True)
def quick_defaults() -> Iterator[None]:
    """`DEFAULTS` as those of the config's fields."""
    create: Any = TrainConfig.__init__
    names = [field.name for field in dataclasses.fields(TrainConfig)][-len(create.__defaults__) :]
    assert set(DEFAULTS) <= set(names)
    values = tuple(DEFAULTS.get(name, old) for name, old in zip(names, create.__defaults__, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(create, "__defaults__", values)
        yield


@pytest.fixture(scope="module")
def first_folder(quick_defaults: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the first snippet was executed; later ones load its files."""
    folder = tmp_path_factory.mktemp("first")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(shortened(PAIRS[1][1][1]), {})
    return folder


def rows(run_dir: Path, file: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / file).read_text(encoding="utf-8").splitlines()]


def record(run_dir: Path) -> dict[str, Any]:
    return dict(json.loads((run_dir / "run.json").read_text(encoding="utf-8")))


class Checks:
    """What a snippet has done, by its number: names that it has defined, files that it has written."""

    def of_1(self, agent: Any, **_: Any) -> None:
        assert agent.result.metrics["gradient_steps"] == STEPS - 100 and agent.run_dir.name == "pendulum"
        assert Path("pendulum.safetensors").is_file() and Path("runs/pendulum/config.yaml").is_file()

    def of_2(self, env: Any, action: Any, **_: Any) -> None:
        assert env.action_space.contains(action)

    def of_3(self, mean: float, std: float, found: dict[str, Any], **_: Any) -> None:
        assert mean < 0 < std and found["eval_episodes"] == 20

    def of_4(self, agent: Any, **_: Any) -> None:
        assert agent.config.num_envs == agent.replay.num_envs == 4
        assert agent.result.metrics["gradient_steps"] == agent.result.metrics["global_step"] - 100  # as with one

    def of_5(self, agent: Any, **_: Any) -> None:
        assert record(agent.run_dir)["execution_plan"]["workers"] == 2

    def of_6(self, agent: Any, returns: list[float], **_: Any) -> None:
        assert len(set(returns)) == 20
        saved = type(agent).load("seed3.safetensors")
        obs = np.zeros(3)
        torch.set_num_threads(1)  # several divide the matrices of one seed otherwise than those of many
        assert saved.predict(obs) == agent.predict(obs, seed_index=3) != agent.predict(obs, seed_index=2)

    def of_7(self, agent: Any, **_: Any) -> None:
        assert agent.result.metrics["global_step"] == 2 * int(shortened("5_000"))
        half = int(shortened("5_000"))
        short, long = agent.replay.storage["next_obs"][0, :half], agent.replay.storage["next_obs"][0, half : 2 * half]
        assert torch.equal((short * 5).round() / 5, short) and torch.equal((long * 8).round() / 8, long)
        assert not torch.equal(short, long)

    def of_8(self, agent: Any, best: Any, **_: Any) -> None:
        found = rows(agent.run_dir, "evaluations.jsonl")
        assert [row["step"] for row in found] == [55, 110, STEPS] and len(found[0]["returns"]) == 10
        means = {row["step"]: np.mean(row["returns"]) for row in found}
        assert best.agent.step == max(means, key=lambda step: means[step])

    def of_9(self, agent: Any, **_: Any) -> None:
        means = [np.mean(row["returns"]) for row in rows(agent.run_dir, "evaluations.jsonl")]
        stopped = record(agent.run_dir)["status"] == "stopped"
        ends = [n for n in range(8, len(means) + 1) if max(means[n - 3 : n]) <= max(means[: n - 3])]
        assert (len(means) == ends[0] if ends else len(means) >= 10) and stopped == bool(ends)

    def of_10(self, agent: Any, **_: Any) -> None:
        assert len(list(Path("runs/sac-Pendulum-v1-seed0/checkpoints").iterdir())) == 3
        assert agent.agent.step == int(shortened("4_000")) and len(list(Path("models").iterdir())) == 5

    def of_11(self, agent: Any, **_: Any) -> None:
        assert agent.result.metrics["global_step"] == int(shortened("8_000"))
        shares = [row["time/share"] for row in rows(agent.run_dir) if "time/share" in row]
        assert shares == [step / STEPS for step in range(11, 89, 11)]

    def of_12(self, agent: Any, found: dict[str, Any], **_: Any) -> None:
        assert 0 <= found["eval_success_rate"] <= 1 and -1 <= found["eval_height"] <= 1
        assert {"rollout/success_rate", "rollout/height"} <= {name for row in rows(agent.run_dir) for name in row}

    def of_13(self, agent: Any, frame: Any, **_: Any) -> None:
        assert (agent.run_dir / "metrics.csv").is_file() and list((agent.run_dir / "tensorboard").rglob("events*"))
        assert list(frame["step"])[-1] == STEPS and "eval/mean_reward" in frame

    def of_14(self, agent: Any, **_: Any) -> None:
        assert list((agent.run_dir / "wandb").glob("offline-run-*"))

    def of_15(self, agent: Any, **_: Any) -> None:
        assert agent.learner.normalizer is not None and agent.predict(np.zeros(3)).shape == (1,)

    def of_16(self, agent: Any, **_: Any) -> None:
        shapes = {name: tuple(tensor.shape) for name, tensor in agent.learner.state_dict().items()}
        assert [size for name, size in shapes.items() if "actor" in name and size[-2:] == (64, 64)]
        assert [size for name, size in shapes.items() if "critic" in name and size[-2:] == (128, 128)]

    def of_17(self, agent: Any, Features: type, **_: Any) -> None:
        assert any(isinstance(module, Features) for module in agent.learner.model.modules())

    def of_18(self, **_: Any) -> None:
        named, own = (load_file(f"runs/sac-Pendulum-v1-seed0{n}/agents/seed_0_final.safetensors") for n in ("", "-2"))
        assert named.keys() == own.keys() and all(np.allclose(named[name], own[name], atol=1e-6) for name in named)

    def of_19(self, agent: Any, **_: Any) -> None:
        assert agent.learner.settings.optimizer.name == "AdamW"

    def of_20(self, agent: Any, **_: Any) -> None:
        assert agent.predict({"position": np.zeros(2), "velocity": np.zeros(1)}).shape == (1,)

    def of_21(self, agent: Any, **_: Any) -> None:
        assert agent.agent.spec.observation.shape == (4, 84, 84) and agent.result.metrics["gradient_steps"] == 13

    def of_22(self, agent: Any, **_: Any) -> None:
        assert agent.learner.settings.her.n == 4 and agent.result.metrics["gradient_steps"] > 50

    def of_23(self, agent: Any, **_: Any) -> None:
        assert agent.replay.size == agent.result.metrics["global_step"] == STEPS + int(shortened("2_000"))
        assert record(agent.run_dir)["resume"] == "exact"

    def of_24(self, agent: Any, **_: Any) -> None:
        assert record(agent.run_dir)["started_from"]["groups"] == ["actor"]
        whole = record(Path("runs/sac-Pendulum-v1-seed0"))["started_from"]
        assert whole["path"].endswith("pendulum.safetensors") and not whole.get("groups")

    def of_25(self, weights: dict[str, Any], rewards: torch.Tensor, **_: Any) -> None:
        assert rewards.shape == (STEPS,) and bool((rewards < 0).all())
        assert all(isinstance(value, torch.Tensor) for value in weights.values())

    def of_26(self, videos: list[Path], **_: Any) -> None:
        assert [path.name for path in videos] == [f"step_{STEPS}.webm"]

    def of_27(self, agent: Any, **_: Any) -> None:
        found = agent.result.metrics
        assert (found["global_step"], found["gradient_steps"]) == (1000, 1 * 4 * 2)  # one rollout of 512 is complete
        assert agent.learner.settings.clip_range == 0.1

    def of_28(self, agent: Any, **_: Any) -> None:
        assert agent.result.metrics["gradient_steps"] == 200 // 40

    def of_29(self, agent: Any, state: dict[str, Any], terminated: bool, **_: Any) -> None:
        assert state["h"].shape == (1, 64) and agent.result.metrics["gradient_steps"] == 10 * 2

    def of_30(self, agent: Any, action: Any, **_: Any) -> None:
        assert action == 1 and agent.result.metrics["eval_return_mean"] == 20  # no closed door is ever chosen


# More than a second each: `make test-all` runs them.
LONGER = {4, 5, 6, 8, 14, 21, 22, 23, 24, 26}


@pytest.mark.sweep
@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=pytest.mark.sweep if n in LONGER else ()) for n in PAIRS if n != COMMANDS],
)
def test_a_snippet_runs(number: int, first_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in PACKAGES.get(number, ()):
        pytest.importorskip(package)
    folder = shutil.copytree(first_folder, tmp_path / "folder") if number > 1 else tmp_path
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"__name__": "my_script"}
    exec(shortened(PAIRS[number][1][1]), names)
    getattr(Checks(), f"of_{number}")(**names)


@pytest.mark.sweep
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in shortened(PAIRS[COMMANDS][1][1]).splitlines():
        assert main(shlex.split(line)[1:]) == 0, line
    assert Path("zoo.webm").is_file()
    assert record(tmp_path / "runs" / "zoo")["metrics"]["global_step"] == int(shortened("12000"))


def test_the_page_has_pairs_in_order_and_a_table_of_them() -> None:
    assert list(PAIRS) == list(range(1, COMMANDS + 1)) and len(PAIRS) >= 20
    assert re.findall(r"^\| \[.+\]\(#(\d+)-", PAGE, re.MULTILINE) == [str(number) for number in PAIRS]
    assert f"divided by {FEWER_STEPS};" in PAGE
    for number, (title, blocks) in PAIRS.items():
        assert len(blocks) == 2, title
        if number != COMMANDS:
            imported = [{name.split(".")[0] for name in modules(code)} for code in blocks]
            assert "stable_baselines3" in imported[0] and "rl_training" in imported[1], title
            assert "rl_training" not in imported[0] and "stable_baselines3" not in imported[1], title


def modules(code: str) -> Iterator[str]:
    """The modules that a program imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_names_of_arguments_are_those_that_errors_answer_with() -> None:
    text = PAGE.partition("## Names of arguments")[2].partition("\n## ")[0]
    pairs = re.findall(r"^\| `(\w+)` \| `(\w+)`(?!\()", text, re.MULTILINE)
    assert len(pairs) > 15
    assert [pair for pair in pairs if pair[0] not in OURS[pair[1]].split()] == []
    settings = {
        field.name for algo in algorithm_names() for field in dataclasses.fields(learner_class(algo).settings_type)
    }
    known = settings | {field.name for field in dataclasses.fields(TrainConfig)}
    same = re.findall(r"`(\w+)`", text.rpartition("|")[2])
    assert len(same) > 10 and set(same) | {ours for _, ours in pairs} <= known
