from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.pqn_trainer import train_pqn


@pytest.mark.sweep
def test_train_pqn_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    """Six rollouts of 20 steps, two epochs of two minibatches; the last 8 steps fill no rollout."""
    config = quick_config("pqn", tmp_path, total_timesteps=128, eval_episodes=2)
    check_trainer(train_pqn, config, updates=6 * 2 * 2)


def test_train_pqn_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be pqn, got"):
        train_pqn(quick_config("sac", tmp_path))
