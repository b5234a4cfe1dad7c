from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.td3_bc_trainer import train_td3_bc


@pytest.mark.sweep
def test_train_td3_bc_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    check_trainer(train_td3_bc, quick_config("td3_bc", tmp_path, total_timesteps=128, eval_episodes=2))


def test_train_td3_bc_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be td3_bc, got"):
        train_td3_bc(quick_config("sac", tmp_path))
