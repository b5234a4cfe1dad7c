"""`schedule_steps`: the length of all schedules, apart from the length of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from harness import run_cli

from rl_training.algorithms.bc import BCSettings
from rl_training.algorithms.sac import SACSettings
from rl_training.checkpoint.read import load_checkpoint
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.loops.clock import Clock
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.validate import with_task_defaults

SETTINGS = {"learning_rate_schedule": "linear", "exploration_fraction": 1.0}


@pytest.mark.parametrize(("schedule_steps", "progress"), [(None, 0.5), (100, 0.5), (1000, 0.05)])
def test_progress_is_the_share_of_the_schedules(schedule_steps: int | None, progress: float) -> None:
    config = TrainConfig("sac", "Pendulum-v1", total_timesteps=100, schedule_steps=schedule_steps)
    assert Clock(config, SACSettings()).progress_at(50) == progress


def weights(run_dir: Path, step: int) -> dict[str, torch.Tensor]:
    tensors = load_checkpoint(run_dir / "checkpoints" / f"step_{step:012d}").tensors("learner.safetensors")
    return {name: tensor for name, tensor in tensors.items() if name.startswith(("params.", "adam_"))}


def test_a_shorter_run_is_the_first_part_of_the_longer_one_and_extends_to_it(quick_config: Any, tmp_path: Path) -> None:
    """The learning rate and epsilon of DQN fall over 120 steps, whether the run has 60 of them or all."""
    config = {"eval_episodes": 0, "keep_checkpoints": 9, "checkpoint_interval": 60}
    long = train(quick_config("dqn", tmp_path / "long", SETTINGS, **config), show_progress=False)
    short_config = quick_config("dqn", tmp_path, SETTINGS, total_timesteps=60, schedule_steps=120, **config)
    short = train(short_config, show_progress=False)
    wanted = weights(long.run_dir, 60)
    assert all(torch.equal(wanted[name], one) for name, one in weights(short.run_dir, 60).items())
    resume_training(short.run_dir, total_timesteps=120, show_progress=False)
    wanted = weights(long.run_dir, 120)
    assert all(torch.equal(wanted[name], one) for name, one in weights(short.run_dir, 120).items())
    extended = resume_training(short.run_dir, total_timesteps=130, show_progress=False)  # beyond the schedules
    state = load_checkpoint(extended.checkpoint_path).state
    assert (state["parts"]["clock"]["horizon"], state["config"]["schedule_steps"]) == (120, 120)


def test_schedules_shorter_than_the_run_are_rejected(tmp_path: Path) -> None:
    message = "schedule_steps must be >= total_timesteps (200), got 100: schedules would end before the run"
    with pytest.raises(UserError) as rejected:
        with_task_defaults(TrainConfig("sac", "Pendulum-v1", total_timesteps=200, schedule_steps=100))
    assert str(rejected.value) == message
    words = ["train", "sac", "Pendulum-v1", "--total-timesteps", "200", "--set", "schedule_steps=100"]
    answer = run_cli(*words, "--output-dir", str(tmp_path))
    assert (answer.returncode, answer.stderr.strip().splitlines()) == (2, [f"error: {message}"])
    assert not list(tmp_path.iterdir())


def test_the_schedules_of_an_offline_stage_are_its_own() -> None:
    """A run that continues online has schedules over `offline_steps`, which may be fewer than all its steps."""
    settings = {"offline_steps": 50}
    config = TrainConfig("iql", "Pendulum-v1", total_timesteps=200, schedule_steps=100, algo_kwargs=settings)
    assert with_task_defaults(config)[0].schedule_steps == 100
    with pytest.raises(UserError, match=r"schedule_steps must be >= offline_steps \(50\), got 40"):
        with_task_defaults(TrainConfig("iql", "Pendulum-v1", schedule_steps=40, algo_kwargs=settings))
    with pytest.raises(ValueError, match="schedule_steps must be >= 1"):
        TrainConfig("bc", "Pendulum-v1", schedule_steps=0)
    assert Clock(TrainConfig("bc", "none", total_timesteps=10), BCSettings()).horizon == 10
