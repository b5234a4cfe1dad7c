from __future__ import annotations

from pathlib import Path

from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.runtime.dqn_trainer import train_dqn


def test_train_dqn_serves_rainbow_dqn(quick_config, tmp_path: Path) -> None:
    result = train_dqn(quick_config("rainbow_dqn", tmp_path, total_timesteps=128), run_suffix="smoke")
    assert result.metrics["gradient_steps"] == 108 and "eval_return_mean" in result.metrics
    assert get_algorithm_spec("rainbow_dqn").predict_fn(result.checkpoint_path, [0.0] * 4) in (0, 1)
