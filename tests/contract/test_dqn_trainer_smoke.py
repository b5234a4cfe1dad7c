from __future__ import annotations

import json
from pathlib import Path

import pytest
from harness import check_trainer

from rl_training.core.checks import UserError
from rl_training.runtime.dqn_trainer import train_dqn


def test_train_dqn_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    config = quick_config("dqn", tmp_path, total_timesteps=128, eval_episodes=2)
    check_trainer(train_dqn, config)


def test_train_dqn_refuses_another_algorithms_config(quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="algo must be dqn or c51_dqn or qr_dqn or iqn or rainbow_dqn, got"):
        train_dqn(quick_config("sac", tmp_path))


def test_train_qr_dqn_writes_checkpoint_and_metrics(quick_config, tmp_path: Path) -> None:
    result = train_dqn(quick_config("qr_dqn", tmp_path, total_timesteps=128), run_suffix="smoke")
    assert (result.checkpoint_path / "manifest.json").exists()
    assert result.metrics["global_step"] == 128
    rows = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    trained = [row for row in rows if row.get("train/loss") is not None]
    assert trained and all(row["train/td_error_mean"] > 0 for row in trained)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "switch", [{"double": True}, {"dueling": True}, {"n_step": 3}, {"prioritized": True}, {"noisy": True}]
)
def test_switches_change_what_is_learned(switch, quick_config, finished_run, tmp_path: Path) -> None:
    config = quick_config("dqn", tmp_path, eval_episodes=0, algo_kwargs=switch)
    losses = []
    for result in (finished_run("dqn"), train_dqn(config, run_suffix="switched")):
        rows = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
        losses.append([row["train/loss"] for row in rows if "train/loss" in row][-1])
    assert None not in losses and losses[0] != losses[1]
