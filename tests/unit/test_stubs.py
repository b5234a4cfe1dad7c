"""The stubs are what the registry exports, and a type checker reads them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT

import rl_training

PACKAGE = Path(rl_training.__file__).parent
GOOD = """
from rl_training import IQL, SAC, Callback, TrainConfig, __version__, load
from rl_training.algorithms import SAC as Learner, sac_loss
from rl_training.api import ManagedAlgorithm, managed_class
from rl_training.runtime.sac_trainer import train_sac

agent: SAC = SAC("Pendulum-v1", seed=0, gamma=0.98).learn(1000, show_progress=False)
again: SAC = SAC.load(agent.save("agent.safetensors"))
name: str = SAC.algo_name
made: ManagedAlgorithm = managed_class("sac")(TrainConfig("sac", "Pendulum-v1"))
steps = train_sac(TrainConfig("sac", "Pendulum-v1"), run_suffix="a").metrics["global_step"]
losses = sac_loss({})
keywords = SAC("a", hidden_sizes=[8], seeds=range(3), output_dir="x", alpha="auto", max_grad_norm=None, run_name="b")
offline = IQL("a", dataset={}, dataset_path=["x", "y"], reward_scale="return_range")
tuned: SAC = keywords.learn(10, from_agent=again, from_groups=["actor"])
best: SAC = tuned.best_agent
any_one: ManagedAlgorithm = load("a", env="b")
"""
WRONG = {
    "from rl_training import SACC": 'Module "rl_training" has no attribute "SACC"',
    "from rl_training.api import Sac": 'Module "rl_training.api" has no attribute "Sac"',
    "from rl_training.algorithms import td3_loss": 'Module "rl_training.algorithms" has no attribute "td3_loss"',
    "from rl_training import SAC\nSAC('a', gamma='b')": 'Argument "gamma" to "SAC" has incompatible type "str"',
    "from rl_training import SAC\nSAC('a', gama=1)": 'Unexpected keyword argument "gama" for "SAC"',
    "from rl_training import SAC\nSAC('a', alpha='b')": "expected \"float | Literal['auto']\"",
    "from rl_training import SAC\nSAC('Pendulum-v1').lern()": '"SAC" has no attribute "lern"',
    "from rl_training import SAC\nSAC('Pendulum-v1').learn('many')": 'Argument 1 to "learn"',
    "from rl_training.runtime.sac_trainer import train_sac\ntrain_sac('sac')": 'expected "TrainConfig"',
    "import rl_training.runtime.ssac_trainer": '"rl_training.runtime.ssac_trainer"',
}


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "scripts" / "stubs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_stubs_are_what_the_registry_gives(script) -> None:
    expected = script.stubs()
    found = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.pyi")}
    assert found == expected, "run `make stubs`"


@pytest.mark.sweep  # of the stubs themselves, `make lint` is the proof
def test_a_type_checker_accepts_right_names_and_rejects_wrong_ones(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    others = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in ("torch", "numpy", "gymnasium"))
    others += "[mypy-rl_training.*]\nignore_errors = True\n"
    (tmp_path / "mypy.ini").write_text(f"[mypy]\ncache_dir = {tmp_path / 'cache'}\n{others}")  # torch takes a minute
    (tmp_path / "good.py").write_text(GOOD)
    for number, code in enumerate(WRONG):
        (tmp_path / f"wrong_{number}.py").write_text(code)
    files = sorted(path.name for path in tmp_path.glob("*.py"))
    answer = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", *files],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = sorted(line for line in answer.stdout.splitlines() if ": error: " in line)
    assert len(lines) == len(WRONG), answer.stdout + answer.stderr
    for number, (line, message) in enumerate(zip(lines, WRONG.values(), strict=True)):
        assert line.startswith(f"wrong_{number}.py:") and message in line
