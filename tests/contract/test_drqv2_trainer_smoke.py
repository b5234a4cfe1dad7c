from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_learns_from_pictures, check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.drqv2_trainer import train_drqv2


@pytest.mark.sweep
def test_train_drqv2_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("drqv2", tmp_path, total_timesteps=128, eval_episodes=2)
    check_trainer(train_drqv2, config)


@pytest.mark.sweep
def test_it_learns_from_pictures(tmp_path: Path) -> None:
    check_learns_from_pictures("drqv2", 16, tmp_path, std_steps=200, n_step=3)


def test_train_drqv2_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be drqv2, got"):
        train_drqv2(quick_config("sac", tmp_path))
