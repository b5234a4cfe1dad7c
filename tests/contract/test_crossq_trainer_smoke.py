from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.crossq_trainer import train_crossq


@pytest.mark.sweep
def test_train_crossq_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("crossq", tmp_path, total_timesteps=128, eval_episodes=2)
    check_trainer(train_crossq, config)


def test_train_crossq_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be crossq, got"):
        train_crossq(quick_config("sac", tmp_path))
