"""Environments that carry state from one episode to the next: made anew for each, so that a resumed run is exact."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from carrying_envs import CARRYING, Carrying
from resume_harness import Forks, compare_runs, make_config, read_json

from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.rng import episode_seed, stream
from rl_training.data.datasets.generate import record_random
from rl_training.envs import make
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.host.workers import WorkerStepper
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.workflows import evaluate_agent, load_agent

MODULE = f"carrying_envs:{CARRYING}"  # what a worker process can import


def play(envs: SeededEnvs, steps: range) -> list[bytes]:
    trace = []
    for step in steps:
        envs.step(stream(0, "explore", step).uniform(-1, 1, (envs.size, envs.action.spec.size)).astype(np.float32))
        arrays = (envs.obs, envs.next_obs, envs.rewards, envs.terminated, envs.truncated)
        trace.append(b"".join(array.tobytes() for array in arrays))
        envs.advance()
    return trace


# --- rows of environments ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("workers", [0, 2])
def test_rows_are_rebuilt_for_every_episode_and_resume_exactly(workers: int) -> None:
    source = EnvSource(MODULE, restore="rebuilt")
    envs, restored = SeededEnvs(source, [1, 2], 2), SeededEnvs(source, [1, 2], 2, workers=workers)
    try:
        assert restored.note is None and isinstance(restored.stepper, WorkerStepper) == bool(workers)
        envs.reset_all()
        first = play(envs, range(30))  # into the third episode
        assert restored.restore(envs.snapshot())
        assert play(envs, range(30, 60)) == play(restored, range(30, 60))
        whole = SeededEnvs(source, [1, 2], 2, workers=workers)
        whole.reset_all()
        assert play(whole, range(30)) == first
        whole.close()
    finally:
        envs.close()
        restored.close()


def test_without_rebuilding_a_resume_would_differ() -> None:
    """The control: these rows do carry something over."""
    source = EnvSource(CARRYING, restore="replay")
    envs, restored = SeededEnvs(source, [1], 1), SeededEnvs(source, [1], 1)
    envs.reset_all()
    play(envs, range(30))
    assert not restored.restore(envs.snapshot())


def test_a_rebuilt_row_keeps_its_wrappers_and_closes_what_it_replaces() -> None:
    Carrying.made = Carrying.closed = 0
    kwargs = {"length": 7, "wrappers": {"action_repeat": 2}}
    envs = SeededEnvs(EnvSource(CARRYING, kwargs, restore="rebuilt"), [1], 2)
    envs.reset_all()
    assert Carrying.made == 2, "a row that was never used is fresh"
    play(envs, range(12))  # episodes of 4 steps, of 7 of the environment's
    assert envs.episodes == [3, 3]
    assert (Carrying.made, Carrying.closed) == (8, 6)
    envs.close()
    assert Carrying.closed == Carrying.made


def test_an_environment_that_cannot_be_made_again_fails_with_what_reproduces_it() -> None:
    made: list[Carrying] = []

    def make() -> Carrying:
        if len(made) == 1:
            raise OSError("the port is taken")
        made.append(Carrying("actions", length=3))
        return made[-1]

    envs = SeededEnvs(EnvSource("<port>", factory=make, restore="rebuilt"), [1], 1)
    envs.reset_all()
    with pytest.raises(Exception, match="environment 0 of seed 1, episode 1, step 0: make raised OSError: the port"):
        play(envs, range(3))


def test_a_recorded_dataset_does_not_depend_on_what_was_played_before() -> None:
    data = record_random(EnvSource(CARRYING), 40, seed=3)
    stops = np.flatnonzero(data.terminated | data.truncated) + 1
    assert len(stops) == 4
    for episode, (start, stop) in enumerate(zip([0, *stops], stops, strict=False)):
        env = Carrying("actions")  # of its own
        env.reset(seed=episode_seed(3, "data", 0, episode))
        assert [env.step(action)[1] for action in data.actions[start:stop]] == data.rewards[start:stop].tolist()


# --- runs -------------------------------------------------------------------------------------------------------------
def config_of(env_id: str, **changes: Any) -> TrainConfig:
    env_kwargs = changes.pop("env_kwargs", {})
    return dataclasses.replace(make_config("sac", **changes), env_id=env_id, env_kwargs=env_kwargs)


@pytest.fixture(scope="module")
def whole(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return forks.train(config_of(CARRYING), tmp_path_factory.mktemp("whole"))


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("at", "how"),
    [
        ("mid_episode", {"n": 57, "save": True}),
        pytest.param("episode_end", {"n": 57, "save": True}, marks=pytest.mark.sweep),
        ("evaluation", {"n": 20}),  # in the second one, whose environments have played the first
    ],
)
def test_a_killed_and_resumed_run_of_a_carrying_environment_ends_with_the_same_bits(
    forks: Forks, whole: Path, at: str, how: dict[str, Any], tmp_path: Path
) -> None:
    where = forks.cut(config_of(CARRYING), tmp_path, at=at, **how)
    assert 57 <= where["step"] < 118
    resumed = forks.resume(tmp_path)
    assert compare_runs(whole, resumed) == []
    record = read_json(resumed / "run.json")
    assert record["resume"] == "exact" and record["environment"]["restore"] == "rebuilt"


@pytest.mark.sweep
def test_a_killed_and_resumed_run_of_bipedal_walker_ends_with_the_same_bits(forks: Forks, tmp_path: Path) -> None:
    pytest.importorskip("Box2D")
    options = {"total_timesteps": 360, "seeds": (3,), "num_envs": 1, "eval_episodes": 0, "checkpoint_interval": 60}
    config = config_of("BipedalWalker-v3", env_kwargs={"max_episode_steps": 50}, **options)
    whole = forks.train(config, tmp_path / "whole")
    forks.cut(config, tmp_path / "cut", at="mid_episode", n=170, save=True)
    assert compare_runs(whole, forks.resume(tmp_path / "cut")) == []


class Stop(Callback):
    def on_step(self, session: Any) -> bool | None:
        return False if session.step >= 70 else None


def test_the_class_is_recorded_reported_and_used_again_on_resume(quick_config, tmp_path, monkeypatch, capsys) -> None:
    Carrying.made = Carrying.closed = 0

    def make_env(**kwargs: Any) -> Carrying:
        return Carrying("actions", length=10)

    config = quick_config("sac", tmp_path, eval_episodes=0, env_id="<Carrying>", log_interval=1000)
    result = train(config, callbacks=[Stop()], env_factory=make_env, show_progress=False)
    record = read_json(result.run_dir / "run.json")
    assert record["environment"]["restore"] == "rebuilt" and record["environment"]["rebuild_ms"] >= 0
    notice = (
        "environment '<Carrying>' carries state from one episode to the next, so a new copy is made for every episode"
    )
    told = capsys.readouterr().err
    assert notice in told and " ms each): a resumed run is exact" in told
    assert Carrying.made == Carrying.closed

    def never(source: EnvSource) -> None:
        raise AssertionError("decided again")

    monkeypatch.setattr(make, "check_environment", never)
    made = Carrying.made
    resumed = resume_training(result.run_dir, env_factory=make_env, show_progress=False)
    assert notice in capsys.readouterr().err
    assert Carrying.made - made == 6 and Carrying.made == Carrying.closed  # the open episode, five more from step 70 on
    assert read_json(resumed.run_dir / "run.json")["environment"] == record["environment"]


def rewrite(run_dir: Path, **changes: Any) -> None:
    record = {**read_json(run_dir / "run.json"), **changes}
    (run_dir / "run.json").write_text(json.dumps({k: v for k, v in record.items() if v is not None}))


def test_a_run_from_before_the_check_is_classified_on_resume(quick_config, tmp_path: Path, capsys) -> None:
    config = quick_config("sac", tmp_path, eval_episodes=0, env_id=CARRYING)
    result = train(config, callbacks=[Stop()], show_progress=False)
    rewrite(result.run_dir, environment={"env_id": CARRYING, "restore": "often"})
    with pytest.raises(UserError, match=r"run.json: restore must be one of native, replay, rebuilt, inexact"):
        resume_training(result.run_dir, show_progress=False)
    rewrite(result.run_dir, environment=None)
    resume_training(result.run_dir, show_progress=False)
    record = read_json(result.run_dir / "run.json")
    assert record["environment"]["restore"] == "rebuilt"
    assert record["resume"] == "inexact" and "no new copy was made for each one so far" in record["resume_note"]
    assert "resume: inexact (the environment carries state" in capsys.readouterr().err


def test_a_copied_run_and_a_lone_checkpoint_keep_the_class(quick_config, tmp_path: Path) -> None:
    result = train(
        quick_config("sac", tmp_path / "one", eval_episodes=0, env_id=CARRYING), callbacks=[Stop()], show_progress=False
    )
    copied = resume_training(result.run_dir, output_dir=tmp_path / "two", show_progress=False)
    (result.run_dir / "run.json").unlink()
    alone = resume_training(result.checkpoint_path, output_dir=tmp_path / "three", show_progress=False)
    for run in (copied, alone):
        record = read_json(run.run_dir / "run.json")
        assert record["environment"]["restore"] == "rebuilt" and record["resume"] == "exact"


def test_an_evaluation_does_not_pay_for_the_long_check(quick_config, tmp_path: Path) -> None:
    config = quick_config("sac", tmp_path, eval_episodes=0, env_id=CARRYING, total_timesteps=30)
    agent = load_agent(train(config, show_progress=False).checkpoint_path)
    Carrying.made = 0
    evaluate_agent(agent, EnvSource(CARRYING), 2)
    assert Carrying.made == 3, "one for the spaces, one for each episode"
