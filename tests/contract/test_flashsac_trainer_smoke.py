from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.flashsac_trainer import train_flashsac


@pytest.mark.sweep
def test_train_flashsac_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("flashsac", tmp_path, total_timesteps=128, eval_episodes=2)
    check_trainer(train_flashsac, config)


def test_train_flashsac_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be flashsac, got"):
        train_flashsac(quick_config("sac", tmp_path))
