"""Whole runs whose MuJoCo environments are stepped in threads: the bits of runs in one process, and exact resume."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import make_quick_config
from resume_harness import compare_runs

from rl_training import Curriculum
from rl_training.envs.host import vector
from rl_training.envs.host.mujoco.stepper import ThreadedStepper
from rl_training.run import plan
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train

pytest.importorskip("mujoco")

STAGES = {0: {"frame_skip": 4}, 30: {"frame_skip": 2}, 70: {"frame_skip": 5}}
CASES = [
    ("sac", "Hopper-v5", [Curriculum(STAGES)]),
    pytest.param("ppo", "Humanoid-v5", [], marks=pytest.mark.sweep),
    pytest.param("td3", "Reacher-v4", [Curriculum({50: {"frame_skip": 1}})], marks=pytest.mark.sweep),
]


class Steppers(Callback):
    """Notes the class that steps the environments."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def on_start(self, session: Any) -> None:
        self.found.add(type(session.envs.rows.stepper).__name__)


def run(algo: str, env_id: str, folder: Path, monkeypatch: pytest.MonkeyPatch, callbacks: list[Any]) -> Path:
    folder.mkdir()
    monkeypatch.chdir(folder)  # the config of all names the same output_dir
    config = make_quick_config(
        algo, Path("runs"), env_id=env_id, env_kwargs={"max_episode_steps": 20}, seeds=(3, 5), num_envs=2,
        eval_interval=40, eval_episodes=3, info_metrics=("reward_ctrl",),
    )  # fmt: skip
    return train(config, callbacks=callbacks, show_progress=False).run_dir.absolute()


@pytest.mark.parametrize(("algo", "env_id", "callbacks"), CASES)
def test_a_run_in_threads_is_the_run_in_one_process_and_is_resumed_exactly(
    algo: str, env_id: str, callbacks: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steppers = Steppers()
    monkeypatch.setattr(plan, "cores", lambda: 2)
    threaded = run(algo, env_id, tmp_path / "threaded", monkeypatch, [*callbacks, steppers])
    made = json.loads((threaded / "run.json").read_text())["execution_plan"]
    assert (made["workers"], made["env_threads"]) == (0, 2) and steppers.found == {"ThreadedStepper"}

    cut = run(algo, env_id, tmp_path / "cut", monkeypatch, [*callbacks, lambda session: session.step < 61])
    resume_training(cut, callbacks=[*callbacks, steppers], show_progress=False)
    assert compare_runs(threaded, cut) == [] and steppers.found == {"ThreadedStepper"}

    monkeypatch.setattr(plan, "cores", lambda: 1)
    for module in (plan, vector):
        monkeypatch.setattr(module, "threaded_task", lambda source: None)
    alone = run(algo, env_id, tmp_path / "alone", monkeypatch, [*callbacks, steppers])
    assert steppers.found == {"ThreadedStepper", "LocalStepper"}
    assert compare_runs(threaded, alone) == ["run.json execution_plan differs"]


def test_evaluations_use_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    class Seen(ThreadedStepper):
        def __init__(self, source: Any, size: int, threads: int) -> None:
            super().__init__(source, size, threads)
            sizes.append(size)

    monkeypatch.setattr(vector, "ThreadedStepper", Seen)
    run("sac", "Swimmer-v5", tmp_path / "run", monkeypatch, [])
    assert sizes == [4, 6]  # training, and all evaluations of three episodes for each of two seeds
