"""Episodes without an end: reported at the start, cut in evaluations, videos and recordings, whole in training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from endless_envs import ENDLESS

from rl_training.cli.main import main
from rl_training.core.checks import Note, UserError
from rl_training.data.datasets.formats.loaders import load_transitions
from rl_training.data.datasets.generate import record_random
from rl_training.envs.host.episode_bound import EpisodeBound
from rl_training.envs.host.factory import EnvSource
from rl_training.run.agent import load_agent
from rl_training.run.artifacts import record_video
from rl_training.run.run import train
from rl_training.run.workflows import evaluate_checkpoint

MISSING = (
    "Endless-v0 has no time limit: in evaluations and videos an episode is cut at 30 steps (eval_episode_limit), "
    "in training it is not"
)
CUT = "episodes cut at 30 steps (eval_episode_limit; the environment has no time limit)"


def endless_config(quick_config, tmp_path: Path, algo: str = "dqn", **changes):
    return quick_config(algo, tmp_path, **{"env_id": ENDLESS, "eval_episode_limit": 30, **changes})


@pytest.fixture
def run_dir(quick_config, tmp_path: Path) -> Path:
    return train(endless_config(quick_config, tmp_path, eval_episodes=0), show_progress=False).run_dir


@pytest.mark.parametrize("algo", ["dqn", "bc"])
def test_report_of_a_missing_time_limit_and_bounded_evaluations(algo, quick_config, tmp_path: Path, capsys) -> None:
    config = endless_config(quick_config, tmp_path, algo, eval_episodes=2, eval_interval=60)
    if algo == "bc":  # whose dataset is random actions
        config.env_kwargs["discrete"] = False
    result = train(config, show_progress=False)
    lines = capsys.readouterr().err.splitlines()
    assert MISSING in lines
    for step in (60, 120):
        assert f"evaluation at step {step}: 2 of 2 {CUT}" in lines
    rows = [json.loads(line) for line in (result.run_dir / "evaluations.jsonl").read_text().splitlines()]
    assert [row["lengths"] for row in rows] == [[30, 30], [30, 30]] and rows[0]["returns"] == [30.0, 30.0]
    if algo == "dqn":
        assert load_agent(result.run_dir).config.eval_episode_limit == 30
        parts = json.loads((result.checkpoint_path / "state.json").read_text())["parts"]
        open_steps = parts["environments"]["statistics"]
        assert open_steps["open_lengths"] == [120]  # training goes on in the same episode


def test_a_time_limit_is_not_reported_and_not_cut_below(quick_config, tmp_path: Path, capsys) -> None:
    limited = {"max_episode_steps": 40}
    result = train(endless_config(quick_config, tmp_path, env_kwargs=limited), show_progress=False)
    assert "limit" not in capsys.readouterr().err
    rows = (result.run_dir / "evaluations.jsonl").read_text().splitlines()
    assert json.loads(rows[0])["lengths"] == [40]


def test_the_commands_report_what_they_cut(run_dir: Path, tmp_path: Path, capsys) -> None:
    def lines(*words: str) -> list[str]:
        capsys.readouterr()
        assert main([*words]) == 0
        return capsys.readouterr().err.splitlines()

    agent = str(run_dir)
    assert lines("evaluate", agent, "--num-episodes", "2") == [f"evaluation: 2 of 2 {CUT}"]
    asked = lines("evaluate", agent, "--num-episodes", "1", "--episode-limit", "7")
    assert asked == ["evaluation: 1 of 1 episodes cut at 7 steps (episode_limit)"]
    video = str(tmp_path / "x.webm")
    assert lines("record", agent, "--output", video) == [f"x.webm: 1 of 1 {CUT}"]
    data = str(tmp_path / "x.npz")
    words = ("data", "record", data, "--agent", agent, "--env", ENDLESS, "--size", "70", "--quiet")
    assert lines(*words) == [f"note: the recording of {ENDLESS}: 2 of 3 {CUT}"]
    assert np.flatnonzero(load_transitions(data).truncated).tolist() == [29, 59, 69]
    words = ("data", "record", str(tmp_path / "y.npz"), "--env", ENDLESS, "--size", "12", "--episode-limit", "5")
    assert "2 of 3 episodes cut at 5 steps (episode_limit)" in lines(*words)[-1]
    assert main(["evaluate", agent, "--episode-limit", "0"]) == 2


def test_an_agent_is_evaluated_and_filmed_within_its_own_bound(run_dir: Path, tmp_path: Path) -> None:
    with pytest.warns(Note, match="3 of 3 episodes cut at 30 steps"):
        metrics = evaluate_checkpoint(run_dir, 3)
    assert metrics["eval_episodes_cut"] == 3 and metrics["eval_return_mean"] == 30
    with pytest.warns(Note, match="2 of 2 episodes cut at 30 steps"):
        _, returns = record_video(load_agent(run_dir), EnvSource(ENDLESS), tmp_path / "x.webm", episodes=2)
    assert returns == [30.0, 30.0]


def test_a_recording_is_cut_as_by_a_time_limit() -> None:
    """Every step as in an environment that has the limit."""
    cut = record_random(EnvSource(ENDLESS), 50, seed=0, bound=EpisodeBound(20))
    limited = record_random(EnvSource(ENDLESS, {"max_episode_steps": 20}), 50, seed=0)
    assert cut.sha256() == limited.sha256()
    assert limited.notes == () and "2 of 3 episodes cut at 20 steps" in cut.notes[0]


@pytest.mark.parametrize("value", [0, -3])
def test_a_bound_below_one_step_is_refused(value: int, quick_config, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="eval_episode_limit must be >= 1"):
        endless_config(quick_config, tmp_path, eval_episode_limit=value)
    with pytest.raises(UserError, match="episode_limit must be >= 1"):
        EpisodeBound(override=value)
