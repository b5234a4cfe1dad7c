from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.discrete_sac_trainer import train_discrete_sac


@pytest.mark.sweep
def test_train_discrete_sac_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("discrete_sac", tmp_path, total_timesteps=64, eval_episodes=1)
    check_trainer(train_discrete_sac, config)


def test_train_discrete_sac_rejects_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be discrete_sac, got"):
        train_discrete_sac(quick_config("sac", tmp_path))
