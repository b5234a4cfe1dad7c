from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.droq_trainer import train_droq


@pytest.mark.sweep
def test_train_droq_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("droq", tmp_path, {"gradient_updates_per_step": 5}, total_timesteps=64, eval_episodes=1)
    check_trainer(train_droq, config, updates_per_step=5)


def test_train_droq_rejects_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be droq, got"):
        train_droq(quick_config("sac", tmp_path))
