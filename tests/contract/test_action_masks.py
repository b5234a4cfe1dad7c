"""Runs with action masks, and with actions without bounds, keep every promise of a run."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import able_learners
import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from masked_envs import DOORS, Doors
from resume_harness import whole_and_cut
from seed_harness import assert_same_bits, saved_arrays
from test_hints import Unbounded
from test_own_vector_env import Corridors
from torch import Tensor

from rl_training.algorithms import registry
from rl_training.cli import main
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.specs import MASK, EnvSpec, continuous, discrete, vector
from rl_training.data.datasets.generate import record_policy, record_random
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.spaces import codecs_of
from rl_training.run.agent import Agent, load_agent
from rl_training.run.artifacts import record_video
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.session import TrainingFailure
from rl_training.run.workflows import evaluate_agent, evaluate_checkpoint
from rl_training.tensors.observations import pack

QUICK = {"total_timesteps": 120, "eval_episodes": 2, "eval_interval": 60, "video": False, "report": False}
SETTINGS = {"learning_starts": 0, "batch_size": 8, "hidden_sizes": [8], "buffer_capacity": 128}
EVERY = {"checkpoint_interval": 40, "log_interval": 40}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, target in able_learners.ALGORITHMS.items():
        monkeypatch.setitem(registry.ALGORITHMS, name, target)


def run(path: Path, algo: str = "masked_dqn", env: str = DOORS, callbacks: Any = (), **changes: Any) -> Any:
    settings, factory = {**SETTINGS, **changes.pop("settings", {})}, changes.pop("factory", None)
    config = TrainConfig(algo, env, output_dir=path, algo_kwargs=settings, **{**QUICK, **EVERY, **changes})
    return train(config, callbacks=callbacks, env_factory=factory, show_progress=False)


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.ALGORITHMS, "masked_dqn", able_learners.ALGORITHMS["masked_dqn"])
        return run(tmp_path_factory.mktemp("masked"))


# --- runs with masks -------------------------------------------------------------------------------------------------
def test_a_run_with_masks_survives_and_one_without_does_not(masked: Any, tmp_path: Path) -> None:
    assert masked.metrics["eval_return_mean"] == 50, "every action of the run was a valid one"
    blind = run(tmp_path, "dqn")
    assert blind.metrics["eval_return_mean"] < 10
    record = json.loads((masked.run_dir / "run.json").read_text())
    assert record["environment"]["masked"] and record["resume"] == "exact"
    assert not json.loads((blind.run_dir / "run.json").read_text())["environment"]["masked"]


@pytest.mark.parametrize(("env", "workers"), [(DOORS, 0), ("masked_envs:DoorsMethod-v0", 2)])
def test_a_cut_run_ends_in_the_same_bits(env: str, workers: int, tmp_path: Path, monkeypatch) -> None:
    start = partial(run, Path("runs"), "masked_dqn", env, seeds=(0, 7), num_envs=2, workers=workers)
    assert whole_and_cut(start, 67, tmp_path, monkeypatch, env_id=env) == []


def test_a_seed_among_others_is_the_seed_alone(tmp_path: Path) -> None:
    options = {"total_timesteps": 60, "settings": {"normalize_observations": True}}
    together = run(tmp_path / "together", seeds=(4, 2), **options)
    alone = run(tmp_path / "alone", seeds=(2,), **options)
    assert_same_bits(saved_arrays(together, 1), saved_arrays(alone, 0))


def test_an_environment_without_masks_is_used_as_ever(tmp_path: Path) -> None:
    plain = run(tmp_path / "dqn", "dqn", "CartPole-v1", total_timesteps=60, seeds=(0,))
    able = run(tmp_path / "able", env="CartPole-v1", total_timesteps=60, seeds=(0,))
    assert_same_bits(saved_arrays(plain, 0), saved_arrays(able, 0))
    with pytest.raises(UserError, match=r"^action_mask must not be given: its environment gave no action masks$"):
        load_agent(able.run_dir).predict([0.0] * 4, action_mask=[1, 1])
    with pytest.raises(UserError, match=r"^action_mask must not be given: dqn does not support action masks$"):
        load_agent(plain.run_dir).predict([0.0] * 4, action_mask=[1, 1])


def test_a_run_is_not_resumed_where_there_are_no_masks(masked: Any, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="action_mask has changed since the checkpoint: 12 -> 0 flags"):
        resume_training(
            masked.run_dir, 160, tmp_path, env_id="masked_envs:DoorsWithout-v0", show_progress=False
        )  # fmt: skip


def test_a_mask_that_allows_nothing_ends_the_run_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(TrainingFailure) as failed:
        run(tmp_path, env="masked_envs:DoorsBlocked-v0", eval_episodes=0, num_envs=2)
    assert str(failed.value).startswith("environment 0 of seed 0, episode 0, step 15: step gave an invalid action mask")


# --- agents ----------------------------------------------------------------------------------------------------------
def walk(agent: Agent, **options: Any) -> float:
    """The return of one episode that follows `predict`."""
    env, total, ended = Doors(), 0.0, False
    obs, info = env.reset(seed=3)
    while not ended:
        action = agent.predict(obs, action_mask=info["action_mask"], **options)
        obs, reward, terminated, truncated, info = env.step(action)
        total, ended = total + reward, terminated or truncated
    return total


def test_predict_follows_the_mask(masked: Any, tmp_path: Path) -> None:
    agent = load_agent(masked.run_dir)
    again = load_agent(agent.save(tmp_path / "agent"))
    assert again.spec == agent.spec and agent.spec.observation.mask == 12
    for one in (agent, again):
        assert walk(one) == 50 and walk(one, deterministic=False) == 50
    obs = np.zeros((2, 3), np.float32)
    masks = np.eye(12)[[4, 9]]
    assert agent.predict(obs, action_mask=masks).tolist() == [4 + 3, 9 + 3], "actions start at 3"
    assert agent.predict(obs[0], action_mask=masks[0]) == 7
    free, batch = agent.predict(obs[0]), agent.predict(obs)
    assert batch.tolist() == [free, free], "without a mask every action is allowed"
    assert agent.predict(obs[0], action_mask=np.ones(12)) == free
    for mask, message in (
        (np.zeros(12), "action_mask must allow at least one action, got none"),
        (np.ones(3), "action_mask must have 12 flags, got 3"),
    ):
        with pytest.raises(UserError, match=message):
            agent.predict(obs[0], action_mask=mask)


def test_the_command_line_takes_a_mask(masked: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", str(masked.run_dir), "--obs", "[[0, 0, 0], [1, 1, 1]]", "--action-mask"]
    assert main([*words, json.dumps(np.eye(12)[[4, 9]].tolist())]) == 0
    assert json.loads(capsys.readouterr().out) == [7, 12]
    assert main([*words, json.dumps([1] * 12)]) == 2
    assert "action_mask must be one for each of the 2 observations" in capsys.readouterr().err


def test_evaluations_videos_and_recordings_follow_the_mask(masked: Any, tmp_path: Path) -> None:
    agent, source = load_agent(masked.run_dir), EnvSource(DOORS)
    assert evaluate_agent(agent, source, 3)["eval_return_mean"] == 50
    assert evaluate_checkpoint(masked.run_dir, 2, env_id="masked_envs:DoorsMethod-v0")["eval_return_mean"] == 50
    with pytest.raises(UserError, match=r"was trained on .* with an action mask of 12 and 12 choices, masked"):
        evaluate_agent(agent, EnvSource("masked_envs:DoorsWithout-v0"), 1)
    _, returns = record_video(agent, source, tmp_path / "x.gif", 2)
    assert returns == [50, 50]
    for env, kwargs, problem in (
        ("masked_envs:DoorsWithout-v0", {}, "reset gave no action mask: neither"),
        (DOORS, {"odd_at": 3, "odd": "missing"}, "step gave no action mask: neither"),
        (DOORS, {"odd_at": 3, "odd": "short"}, "step gave an invalid action mask: action_mask must have 12 flags"),
    ):
        with pytest.raises(UserError, match=f"^environment '{env}': {problem}"):
            record_video(agent, EnvSource(env, kwargs), tmp_path / "y.gif")
    data = record_policy(agent, source, 60, seed=0)
    assert data.obs.shape == (60, 3) and (data.rewards == 1).all() and not data.terminated.any()
    for noise in (0.5, 1.0):
        strict = EnvSource(DOORS, {"raises": True}, restore="replay")  # checked before, without masks
        noisy = record_policy(agent, strict, 60, seed=0, noise=noise)
        assert (noisy.rewards == 1).all() and (noisy.actions != data.actions).any()
    with pytest.raises(UserError, match=r"raised RuntimeError: .* is closed"):
        record_random(EnvSource(DOORS, {"raises": True}), 60, seed=0)


def test_an_agent_file_with_another_mask_is_rejected(masked: Any, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    agent = load_agent(masked.run_dir)
    monkeypatch.setattr(agent.observation, "mask", 11)
    with pytest.raises(UserError, match="action_mask must be 0 or 12, got 11"):
        load_agent(agent.save(tmp_path / "agent"))


# --- a user's own batched environment --------------------------------------------------------------------------------
class MaskedCorridors(Corridors):
    """In the last place but one, and in even ones, going left is not allowed: it would end the run."""

    spec = EnvSpec(vector(2).with_mask(2), discrete(2), episode_limit=8)
    codecs = codecs_of(spec)

    @property
    def masks(self) -> Tensor:
        return torch.stack([self.places % 2, torch.ones_like(self.places)], 1)

    @property
    def obs(self) -> Tensor:
        return pack(self.spec.observation, {"vector": super().obs, MASK: self.masks})

    def step(self, actions: Tensor) -> Any:
        assert self.masks.gather(1, actions.cpu().unsqueeze(1)).all(), "an action that the mask does not allow"
        return super().step(actions)


class Blocked(MaskedCorridors):
    @property
    def masks(self) -> Tensor:
        return torch.zeros(self.size, 2)


def test_an_own_batched_environment_has_its_masks_in_its_observations(tmp_path: Path) -> None:
    made = run(tmp_path / "masked", env="<corridors>", factory=MaskedCorridors, num_envs=2)
    assert 0 < made.metrics["eval_return_mean"] <= 1
    assert load_agent(made.run_dir).predict([0.0, 1.0], action_mask=[0, 1]) == 1
    with pytest.raises(UserError, match=r"^dqn takes no action masks, which are in the observations of <"):
        run(tmp_path / "dqn", "dqn", "<corridors>", factory=MaskedCorridors)
    with pytest.raises(UserError, match="'<corridors>': obs: action_mask must allow at least one action, got none"):
        run(tmp_path / "blocked", env="<corridors>", factory=Blocked)


# --- actions without bounds ------------------------------------------------------------------------------------------
class HalfBounded(Unbounded):
    def __init__(self) -> None:
        super().__init__(-np.inf, np.inf)
        self.action_space = spaces.Box(np.array([-np.inf, 0], np.float32), np.array([np.inf, 0.1], np.float32))


gym.register("Free-v0", Unbounded, kwargs={"low": -np.inf, "high": np.inf})
gym.register("HalfFree-v0", HalfBounded)


@pytest.mark.parametrize("env", ["Free-v0", "HalfFree-v0"])
def test_a_run_without_bounds_is_evaluated_resumed_and_asked(env: str, tmp_path: Path, monkeypatch) -> None:
    start = partial(run, Path("runs"), "unbounded_td3", env, total_timesteps=60)
    assert whole_and_cut(start, 33, tmp_path, monkeypatch) == []
    agent = load_agent(next((tmp_path / "whole" / "runs").iterdir()))
    assert agent.spec.action == continuous(2, bounded=False)
    again = load_agent(agent.save(tmp_path / "agent"))
    found = again.predict([0.3, 0.2])
    assert np.array_equal(found, agent.predict([0.3, 0.2])) and agent.action.space.contains(found)
    assert evaluate_agent(agent, EnvSource(env), 1)["eval_episodes"] == 1
    with pytest.raises(UserError, match=r"^action space Box\(.* is unbounded; give it bounds, e\.g\. gymnasium"):
        run(tmp_path, "td3", env)
    with pytest.raises(UserError, match=r"^action space Box\(.* is unbounded; give it bounds, e\.g\. gymnasium"):
        run(tmp_path, "td3_bc", env)
    with pytest.raises(UserError, match=r"^action space Box\(.* is unbounded; give it bounds, e\.g\. gymnasium"):
        record_random(EnvSource(env), 20, seed=0)


def test_a_bounded_algorithm_rejects_an_own_batched_environment_without_bounds(tmp_path: Path) -> None:
    class Free(Corridors):
        spec = EnvSpec(vector(2), continuous(1, bounded=False), episode_limit=8)
        codecs = codecs_of(spec)

        def step(self, actions: Tensor) -> Any:
            return super().step((actions[:, 0] > 0).long())

    message = "^td3 needs bounded Box actions; <free> has unbounded Box\\(1,\\); use ppo, a2c, unbounded_td3$"
    with pytest.raises(UserError, match=message):
        run(tmp_path / "td3", "td3", "<free>", factory=Free)
    run(tmp_path / "able", "unbounded_td3", "<free>", factory=Free, total_timesteps=20)
