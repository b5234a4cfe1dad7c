from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.iql_trainer import train_iql


def test_train_iql_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    check_trainer(train_iql, quick_config("iql", tmp_path, total_timesteps=128, eval_episodes=2))


def test_train_iql_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be iql, got"):
        train_iql(quick_config("sac", tmp_path))
