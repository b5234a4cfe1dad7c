from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.cql_trainer import train_cql


@pytest.mark.sweep
def test_train_cql_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    check_trainer(train_cql, quick_config("cql", tmp_path, total_timesteps=128, eval_episodes=2))


def test_train_cql_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be cql, got"):
        train_cql(quick_config("sac", tmp_path))
