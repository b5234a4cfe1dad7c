from __future__ import annotations

from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.checks import UserError
from rl_training.runtime.redq_trainer import train_redq


@pytest.mark.sweep
def test_train_redq_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("redq", tmp_path, {"gradient_updates_per_step": 5}, total_timesteps=128, eval_episodes=2)
    check_trainer(train_redq, config, updates_per_step=5)


def test_the_actor_learns_once_per_step(quick_config, tmp_path: Path) -> None:
    """Adam has seen 5 * 20 gradients of the critics and 20 of the actor."""
    config = quick_config("redq", tmp_path, {"gradient_updates_per_step": 5}, total_timesteps=40, eval_episodes=0)
    checkpoint = load_checkpoint(train_redq(config).checkpoint_path)
    powers = checkpoint.tensors("learner.safetensors")["beta_powers"]
    assert powers[:, 0].tolist() == pytest.approx([0.9**100, 0.9**20], rel=1e-9)


def test_train_redq_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be redq, got"):
        train_redq(quick_config("sac", tmp_path))
