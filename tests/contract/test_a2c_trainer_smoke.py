from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.a2c_trainer import train_a2c


@pytest.mark.sweep
def test_train_a2c_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    """Six rollouts of 20 steps, one update each; the last 8 steps fill no rollout."""
    config = quick_config("a2c", tmp_path, total_timesteps=128, eval_episodes=2)
    check_trainer(train_a2c, config, updates=6)


def test_train_a2c_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be a2c, got"):
        train_a2c(quick_config("sac", tmp_path))
