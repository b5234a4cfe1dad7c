from __future__ import annotations

import json
from pathlib import Path

import pytest

from rl_training.core.checks import UserError
from rl_training.runtime.tqc_trainer import train_tqc


def test_train_tqc_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("tqc", tmp_path, total_timesteps=128, eval_episodes=2)
    result = train_tqc(config, run_suffix="smoke")
    assert result.run_dir.parent == tmp_path and result.run_dir.name.endswith("-smoke")
    assert (result.checkpoint_path / "manifest.json").exists()
    assert result.metrics["global_step"] == 128
    assert result.metrics["gradient_steps"] == 128 - 20  # one update per step after learning_starts
    last = [json.loads(line) for line in (result.run_dir / "evaluations.jsonl").read_text().splitlines()][-1]
    assert last["step"] == 128 and len(last["returns"]) == 2
    assert result.metrics["eval_return_mean"] == pytest.approx(sum(last["returns"]) / 2)


def test_train_tqc_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be tqc, got"):
        train_tqc(quick_config("sac", tmp_path))
