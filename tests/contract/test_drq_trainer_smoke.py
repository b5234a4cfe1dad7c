from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_learns_from_pictures, check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.drq_trainer import train_drq


@pytest.mark.sweep
def test_train_drq_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("drq", tmp_path, total_timesteps=128, eval_episodes=2)
    check_trainer(train_drq, config)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("side", "settings"),
    [
        (16, {"alpha": 0.01, "learning_rate": 5e-3}),
        pytest.param(36, {"encoder": "nature", "alpha": "auto", "initial_alpha": 0.01}, marks=pytest.mark.sweep),
    ],
)
def test_it_learns_from_pictures(side: int, settings: dict[str, object], tmp_path: Path) -> None:
    check_learns_from_pictures("drq", side, tmp_path, **settings)


def test_train_drq_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be drq, got"):
        train_drq(quick_config("sac", tmp_path))
