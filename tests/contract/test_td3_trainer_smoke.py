from __future__ import annotations

from pathlib import Path

import pytest
import torch
from harness import check_trainer

from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.checks import UserError
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.session import Session
from rl_training.runtime.td3_trainer import train_td3


@pytest.mark.sweep
def test_train_td3_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("td3", tmp_path, total_timesteps=128, eval_episodes=2)
    check_trainer(train_td3, config)


def test_train_td3_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be td3, got"):
        train_td3(quick_config("sac", tmp_path))


class StopBetweenActorUpdates(Callback):
    """Stops after a step that left the actor one or two updates behind the critics."""

    updates = 0

    def on_step(self, session: Session) -> bool | None:
        due = session.step > 60 and session.gradient_steps % 3 != 0
        self.updates = session.gradient_steps
        return False if due else None


SWEEP = pytest.mark.sweep


@pytest.mark.parametrize("per_step", [pytest.param(1, marks=SWEEP), 2, pytest.param(4, marks=SWEEP)])
def test_resume_between_two_updates_of_the_actor(quick_config, per_step: int, tmp_path: Path) -> None:
    """Whether or not the delay of 3 divides the updates of a step."""
    settings = {"policy_delay": 3, "gradient_updates_per_step": per_step}
    whole = train_td3(quick_config("td3", tmp_path / "whole", settings), show_progress=False)
    stop = StopBetweenActorUpdates()
    cut = train_td3(quick_config("td3", tmp_path / "cut", settings), callbacks=[stop], show_progress=False)
    assert cut.metrics["global_step"] < 70 and stop.updates % 3 != 0
    resumed = resume_training(cut.run_dir, show_progress=False)
    first, second = (load_checkpoint(one.checkpoint_path).tensors("learner.safetensors") for one in (whole, resumed))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    updates = per_step * 100
    steps_of_adam = [0.9**updates, 0.9 ** (updates // 3)]
    assert first["beta_powers"][:, 0].tolist() == pytest.approx(steps_of_adam, rel=1e-9)
