"""Every command and snippet of the pages runs, with fewer steps; what cannot run here is parsed, with the reason.

The blocks of a page run in order, in one folder and with common names; commands in its sentences follow. Numbers of
thousands are divided, `train` gets a short budget, and `RUN` is a finished run of DQN on CartPole, or of SAC where the
command names it. The snippets of docs/from-stable-baselines3.md and docs/writing-an-algorithm.md have tests of their
own, which also look at results.
"""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pytest
import yaml
from test_docs import FENCED, PAGES, ROOT

import rl_training.cli as cli
from rl_training.algorithms import registry
from rl_training.cli.main import build_parser, main
from rl_training.config.train_config import TrainConfig

pytestmark = pytest.mark.sweep  # every page trains
OWN_TESTS = {"from-stable-baselines3.md", "writing-an-algorithm.md"}
FEWER_STEPS, MAX_STEPS = 100, 400
MUJOCO = find_spec("mujoco") is not None
STEPS = 100
COMMAND = re.compile(r"(rl-training|make|curl|for) ")
# Parsed and not run, with the reason; a pattern that nothing matches any more fails.
PARSED = {
    r"^rl-training (push|pull) ": "needs a network; tests/contract/test_hub.py has a stand-in",
    r"^rl-training (evaluate|record|resume|train)$": "a sentence about the command",
    r"^rl-training serve": "runs until it is stopped; tests/contract/test_server.py",
    r"^rl-training demo": "takes minutes; it is what `make demo` runs",
    r"^rl-training .*--launch (ray|slurm)": "needs a cluster",
    r"STUDY\.yaml": "a file that the reader has; the same command runs with a file of examples/",
    r"^rl-training resume RUN .*--(env|data)": "an offline run; tests/contract/test_offline_to_online.py",
    r"^rl-training .*my_networks:": "a module that the reader has; tests/contract/test_own_networks.py",
    r"^rl-training .*my_module:": "a module that the reader has; docs/own-environment.md has one",
    r"^rl-training .*\b(ENV|JSON|RUNS|ALGO|SETTING|COMMAND)\b": "has a placeholder",
    r"^rl-training predict .*--action-mask": "for an agent with action masks; tests/contract/test_action_masks.py",
    r"^(pip|python3 -m venv|curl|for|make|#!/bin/sh)": "installs, needs a server or is a program of the shell",
    r"^# d3rlpy\n": "needs another library",
    r"optuna_callback": "needs a study of the reader; tests/contract/test_optuna_callback.py",
}
DEFAULTS: dict[str, Any] = {"eval_interval": 10**6, "video": False, "report": False, "compile": "off"}
QUICK = ["--eval-episodes", "1", *(f"--set={name}={value}".lower() for name, value in DEFAULTS.items())]
DEFAULTS["eval_episodes"] = 1


@dataclasses.dataclass(frozen=True)
class Step:
    """One thing to run: a command, or a block of code."""

    kind: str
    code: str

    @property
    def reason(self) -> str | None:
        """Why it is only parsed."""
        if not MUJOCO and re.search(r"(Cheetah|Walker2d|Hopper)-v5", self.code):
            return "MuJoCo is not installed"
        return next((reason for pattern, reason in PARSED.items() if re.search(pattern, self.code)), None)


def steps(text: str) -> Iterator[Step]:
    """What a page has to run, in order."""
    for language, code in FENCED.findall(text):
        if language in ("python", "yaml", "sh"):
            yield Step(language, code)
        elif language == "":
            yield from (Step("command", line) for line in code.splitlines() if COMMAND.match(line))
    for line in re.findall(r"`(rl-training [^`]+)`", FENCED.sub("", text)):
        yield Step("command", line)


def shortened(code: str) -> str:
    """The code with every number of thousands divided, and two episodes in place of any number."""

    def fewer(found: re.Match[str]) -> str:
        return str(min(max(int(f"{found[1]}000") // FEWER_STEPS, 10), MAX_STEPS))

    divided = re.sub(r"(\d+)_?000(?!\d)", fewer, code.replace("1e5", "100000"))
    return re.sub(r"(num.episodes[= ])\d+", r"\g<1>2", divided)


def words_of(line: str) -> list[str]:
    """The arguments of a command, with a run in place of RUN and a short budget where it trains."""
    words = shlex.split(shortened(line), comments=True)[1:]
    run = "sac-run" if "sac" in words else "runs/my-run"
    words = [run if word == "RUN" else word.replace("=FILE", "=expert.npz") for word in words]
    if words[0] == "train":
        given = "--total-timesteps" in words
        words += QUICK + ([] if given else ["--total-timesteps", str(STEPS)])
        if "configs/iql/pendulum.yaml" in words:
            words += ["--set=dataset_size=400"]  # which it generates
    return words


@pytest.fixture(scope="module", autouse=True)
def quick_defaults() -> Iterator[None]:
    """`DEFAULTS` as those of the config's fields, and for packaged configs that Python loads."""
    create: Any = TrainConfig.__init__
    names = [field.name for field in dataclasses.fields(TrainConfig)][-len(create.__defaults__) :]
    values = tuple(DEFAULTS.get(name, old) for name, old in zip(names, create.__defaults__, strict=True))
    load = cli.load_config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(create, "__defaults__", values)
        patch.setattr(cli, "load_config", lambda *args, **keys: load(*args, **keys, **DEFAULTS, total_timesteps=STEPS))
        patch.setenv("PYTHONPATH", str(ROOT / "src"))  # of the processes that a sweep starts
        yield


@pytest.fixture(autouse=True)
def same_registry() -> Iterator[None]:
    """Without the algorithms that a snippet has registered."""
    with mock.patch.dict(registry.ALGORITHMS):
        yield


@pytest.fixture(scope="module")
def prepared(quick_defaults: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a reader of the pages has: a run, its agent, a dataset, models, the studies of examples/."""
    folder = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(words_of("rl-training train dqn CartPole-v1 --run-name my-run")) == 0
        assert main(words_of("rl-training train sac Pendulum-v1 --run-name sac-run --output-dir .")) == 0
        for name in ("a", "b"):
            shutil.copytree("runs/my-run", f"runs/{name}")
        shutil.copy("runs/my-run/agents/seed_0_final.safetensors", "agent.safetensors")
        datasets = {"expert": "Pendulum-v1", **({"medium": "Walker2d-v5", "odd": "Hopper-v5"} if MUJOCO else {})}
        for name, env in datasets.items():
            assert main(shlex.split(f"data record {name}.npz --env {env} --size 400")) == 0
        for name, target in {"ppo-normalized.zip": "model.zip", "ppo-normalized-stats.npz": "stats.npz"}.items():
            shutil.copy(ROOT / "tests" / "data" / "sb3" / name, target)
    for path in (ROOT / "examples" / "studies").glob("*.yaml"):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        study = {**yaml.safe_load(path.read_text()), "seeds": "0-1"}
        study |= {"trials": 2} if "trials" in study else {}
        study["config"] |= {**DEFAULTS, "total_timesteps": STEPS, "eval_interval": STEPS // 2}
        target.write_text(yaml.safe_dump(study))
    return folder


def parsed(step: Step) -> None:
    if step.kind == "python":
        ast.parse(step.code)
    elif step.kind == "sh" or not step.code.startswith("rl-training"):
        subprocess.run(["bash", "-n"], input=step.code, text=True, check=True)
    else:
        build_parser().parse_args(shlex.split(step.code, comments=True)[1:])


def execute(step: Step, names: dict[str, Any]) -> None:
    if step.kind == "command":
        assert main(words_of(step.code)) == 0, step.code
    elif step.kind == "yaml":
        assert isinstance(yaml.safe_load(step.code), dict), step.code
        Path("pendulum.yaml").write_text(shortened(step.code))  # which the next command may name
    elif step.code.startswith("# my_env.py"):
        Path("my_env.py").write_text(step.code)
    else:
        exec(shortened(step.code).replace("__main__:", "my_script:"), names)


@pytest.mark.parametrize("page", [path for path in PAGES if path.name not in OWN_TESTS], ids=lambda path: path.name)
def test_a_page_runs(page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(steps(page.read_text(encoding="utf-8")))
    if not any(step.reason is None for step in found):
        for step in found:
            parsed(step)
        return
    monkeypatch.chdir(shutil.copytree(prepared, tmp_path / "folder"))
    monkeypatch.syspath_prepend(os.getcwd())
    monkeypatch.delitem(sys.modules, "my_env", raising=False)
    script = ModuleType("my_script")  # in place of the reader's __main__
    vars(script)["observations"] = np.zeros((5, 4), np.float32)  # of CartPole, for exported policies
    monkeypatch.setitem(sys.modules, "my_script", script)
    for step in found:
        if step.reason is not None:
            parsed(step)
        else:
            execute(step, vars(script))


def test_every_reason_has_a_command_or_snippet() -> None:
    found = [step for path in PAGES if path.name not in OWN_TESTS for step in steps(path.read_text(encoding="utf-8"))]
    assert [pattern for pattern in PARSED if not any(re.search(pattern, step.code) for step in found)] == []
    assert len([step for step in found if step.reason is None]) > 100
