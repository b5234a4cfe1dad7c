from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.runtime.dqn_trainer import train_dqn

SWITCHES = {"double": True, "dueling": True, "n_step": 3}


@pytest.mark.parametrize("switch", [{}, pytest.param(SWITCHES, marks=pytest.mark.sweep)])
def test_train_dqn_serves_qr_dqn(switch: dict[str, object], quick_config, tmp_path: Path) -> None:
    config = quick_config("qr_dqn", tmp_path, total_timesteps=128, algo_kwargs=switch)
    result = train_dqn(config, run_suffix="smoke")
    assert result.metrics["gradient_steps"] == 108 and "eval_return_mean" in result.metrics
    assert get_algorithm_spec("qr_dqn").predict_fn(result.checkpoint_path, [0.0] * 4) in (0, 1)
