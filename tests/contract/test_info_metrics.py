"""Numbers from the info of an episode's last step as metrics: training, evaluation, workers, seeds and resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import goal_envs  # noqa: F401  registers the walk
import numpy as np
import pytest
from conftest import make_quick_config

from rl_training import DQN
from rl_training.core.checks import UserError
from rl_training.envs.episode_metrics import info_number
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train

NAMES = ("is_success", "distance")
CLOCK = ("time/fps", "time/time_elapsed")


def walk_config(folder: Path, **changes: Any) -> Any:
    given = {"env_id": "Walk-v0", "info_metrics": NAMES, "eval_interval": 40, "eval_episodes": 4, **changes}
    return make_quick_config("dqn", folder, **given)


def rows_of(run_dir: Path, name: str = "metrics") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run_dir / f"{name}.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in CLOCK} for row in rows]


class Successes(Callback):
    """Counts by itself what the statistics should have."""

    def __init__(self) -> None:
        self.ended: list[bool] = []

    def on_step(self, session: Any) -> None:
        rows = session.envs.rows
        self.ended += [bool(done) for done, cut in zip(rows.terminated, rows.truncated, strict=True) if done or cut]


def test_a_success_becomes_a_rate_and_other_numbers_a_mean(tmp_path: Path) -> None:
    counted = Successes()
    result = train(walk_config(tmp_path), callbacks=counted, show_progress=False)
    last = [row for row in rows_of(result.run_dir) if "train/n_updates" in row][-1]
    assert 0 < sum(counted.ended) < len(counted.ended) < 100  # some succeed; all are in the window
    assert last["rollout/success_rate"] == pytest.approx(np.mean(counted.ended))
    assert last["rollout/distance"] > 0
    evaluated, episodes = (
        [row for row in rows_of(result.run_dir) if "eval/mean_reward" in row],
        rows_of(result.run_dir, "evaluations"),
    )
    for row, one in zip(evaluated, episodes, strict=True):
        # The reward of a success is 1, and 0 without.
        assert row["eval/success_rate"] == row["eval/mean_reward"] == np.mean(one["is_success"])
        assert row["eval/distance"] == pytest.approx(np.mean(one["distance"]))
    assert result.metrics["eval_success_rate"] == result.metrics["eval_return_mean"]


def test_the_success_rate_is_the_default_and_other_names_are_not(tmp_path: Path) -> None:
    agent = DQN(walk_config(tmp_path, info_metrics=("is_success",))).learn(show_progress=False)
    last = [row for row in rows_of(agent.run_dir) if "train/n_updates" in row][-1]
    assert "rollout/success_rate" in last and "rollout/distance" not in last
    answer = agent.evaluate(num_episodes=6)
    assert answer["eval_success_rate"] == answer["eval_return_mean"]
    assert "eval_distance" not in answer


def test_an_environment_without_a_success_has_no_such_column(finished_run) -> None:
    assert all("success" not in name for row in rows_of(finished_run("dqn").run_dir) for name in row)


def test_workers_give_the_same_numbers() -> None:
    def infos(workers: int) -> list[Any]:
        source = EnvSource("goal_envs:Walk-v0", info_metrics=NAMES)
        envs = SeededEnvs(source, (3, 5), 2, workers=workers)
        assert (envs.note is None) and (workers == 0) == (type(envs.stepper).__name__ == "LocalStepper")
        try:
            envs.reset_all()
            for step in range(40):
                envs.step(np.array([(step + row) % 3 > 0 for row in range(4)], np.int64))
                envs.advance()
            return [envs.statistics.rows(), envs.statistics.state()]
        finally:
            envs.close()

    alone, in_workers = infos(0), infos(3)
    assert alone == in_workers
    assert len(alone[0]) == 2 and alone[0][0]["rollout/success_rate"] != alone[0][1]["rollout/success_rate"]


@pytest.mark.sweep
def test_a_resumed_run_has_the_same_numbers(tmp_path: Path) -> None:
    changes = {"seeds": (3, 5), "num_envs": 2}
    whole = train(walk_config(tmp_path / "whole", **changes), show_progress=False)

    def stop(session: Any) -> bool:
        return session.step < 62

    stopped = train(walk_config(tmp_path / "cut", **changes), callbacks=stop, show_progress=False)
    resumed = resume_training(stopped.run_dir, show_progress=False)
    assert rows_of(resumed.run_dir) == rows_of(whole.run_dir)
    assert resumed.metrics == whole.metrics and "eval_success_rate" in whole.metrics
    # A finished run that is extended, and evaluated no more, still has its last evaluation's rate.
    longer = resume_training(resumed.run_dir, total_timesteps=130, eval_episodes=0, show_progress=False)
    assert longer.metrics["eval_success_rate"] == whole.metrics["eval_success_rate"]


def test_a_number_that_no_episode_has_is_reported_once(tmp_path: Path, capsys) -> None:
    train(walk_config(tmp_path, info_metrics=("is_success", "distnce", "label")))
    lines = [line for line in capsys.readouterr().err.splitlines() if "info_metrics" in line]
    assert lines == ["info_metrics: no number distnce, label in the info of any episode's last step"]


@pytest.mark.parametrize(
    ("value", "number"),
    [(True, 1.0), (np.bool_(False), 0.0), (2, 2.0), (np.float32(0.5), 0.5), (np.array(3), 3.0)],
)
def test_numbers_of_an_info(value: Any, number: float) -> None:
    assert info_number({"x": value}, "x") == number


@pytest.mark.parametrize("value", [None, "1.5", b"1", [1.0], np.zeros(1), {}, object()])
def test_other_values_of_an_info_are_no_numbers(value: Any) -> None:
    assert math.isnan(info_number({"x": value}, "x"))


def test_names_of_the_library_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="info_metrics must be a name that is not one of the library's in every entry"):
        walk_config(tmp_path, info_metrics=("ep_rew_mean",))
