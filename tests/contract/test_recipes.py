"""Datasets that are made from environments, agents and replays, and what a learner gets of them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import make_quick_config

from rl_training.core.checks import UserError
from rl_training.data.datasets import from_run as replay_data
from rl_training.data.datasets import generate as recipes
from rl_training.data.datasets.conversion import load_data, training_data
from rl_training.data.datasets.formats.writing import save_transitions
from rl_training.data.datasets.generate import record_policy, record_random
from rl_training.data.datasets.prepare import dataset_spaces
from rl_training.data.datasets.transitions import FIELDS, Transitions
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.spaces import ActionCodec, ObservationCodec, space_from_dict
from rl_training.run.agent import load_agent
from rl_training.run.run import train

needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is an extra")
PENDULUM, CARTPOLE = EnvSource("Pendulum-v1"), EnvSource("CartPole-v1")


class Counting(gym.Env[Any, Any]):
    """Observes (episode's first number, step); terminates after 3 steps, or is cut off after 4 where it started odd."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Box(-3.0, 5.0, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.first, self.step_number = int(self.np_random.integers(1000)), 0
        return np.array([self.first, 0], np.float32), {}

    def step(self, action: Any) -> Any:
        self.step_number += 1
        odd = bool(self.first % 2)
        obs = np.array([self.first, self.step_number], np.float32)
        return obs, float(action[0]), not odd and self.step_number == 3, odd and self.step_number == 4, {}


COUNTING = EnvSource("<counting>", factory=Counting)


def check_counting(data: Transitions) -> None:
    """The successor of every row is the environment's own, whatever ended the episode, and no end is missing."""
    np.testing.assert_array_equal(data.next_obs, data.obs + np.float32([0, 1]))
    np.testing.assert_array_equal(data.rewards, data.actions[:, 0])
    odd = data.obs[:, 0] % 2 == 1
    np.testing.assert_array_equal(data.terminated, ~odd & (data.next_obs[:, 1] == 3))
    whole = odd & (data.next_obs[:, 1] == 4)
    np.testing.assert_array_equal(data.truncated[whole], True)
    goes_on = ~(data.terminated | data.truncated)
    np.testing.assert_array_equal(data.obs[1:][goes_on[:-1]], data.next_obs[:-1][goes_on[:-1]])
    assert odd.any() and not odd.all() and not goes_on[-1]


def test_a_recording_has_true_successors_and_marked_ends() -> None:
    data = record_random(COUNTING, 61, seed=1)
    check_counting(data)
    assert len(data) == 61 and data.truncated[-1] and data.actions.min() < -2 and data.actions.max() > 4


class Precise(gym.Env[Any, Any]):
    """As Hopper-v5: observations, rewards and actions that float32 cannot hold."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
    action_space = gym.spaces.Box(-1.0, 2.0, (1,), np.float64)
    log: ClassVar[list[Any]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.obs = self.np_random.normal(size=(2, 3)) / 3
        return self.obs, {}

    def step(self, action: Any) -> Any:
        before, self.obs = self.obs, self.np_random.normal(size=(2, 3)) / 3
        reward, terminated = float(self.np_random.normal()), bool(self.np_random.random() < 0.1)
        self.log.append((before, np.array(action), reward, self.obs, terminated))
        return self.obs, reward, terminated, False, {}


PRECISE = EnvSource("<precise>", factory=Precise, restore="replay")  # its log has no episodes of the check


@pytest.mark.parametrize("name", ["data.npz", pytest.param("data.hdf5", marks=needs_h5py),
                                  pytest.param("data", marks=needs_h5py)])  # fmt: skip
def test_a_recording_has_every_bit_that_the_environment_gave(name: str, tmp_path: Path) -> None:
    Precise.log.clear()
    data = record_random(PRECISE, 40, seed=0)
    for field, seen in zip(FIELDS, zip(*Precise.log, strict=True), strict=False):
        expected = np.array(seen)
        assert getattr(data, field).dtype == expected.dtype
        assert getattr(data, field).tobytes() == expected.tobytes(), field
    assert not np.array_equal(data.obs, data.obs.astype(np.float32)) and data.rewards.dtype == np.float64
    assert data.observation_space["dtype"] == data.action_space["dtype"] == "float64"
    loaded = load_data(save_transitions(data, tmp_path / name))
    assert loaded.sha256() == data.sha256()
    assert space_from_dict(loaded.observation_space) == Precise.observation_space
    dataset = training_data(loaded, ObservationCodec(Precise.observation_space), ActionCodec(Precise.action_space), "")
    np.testing.assert_array_equal(dataset.obs.numpy(), data.obs.reshape(40, 6).astype(np.float32))
    np.testing.assert_array_equal(dataset.rewards.numpy(), data.rewards.astype(np.float32))


def test_the_space_of_a_replay_is_what_it_kept(tmp_path: Path) -> None:
    config = make_quick_config("sac", tmp_path, env_id="<precise>", total_timesteps=30, eval_episodes=0)
    data = load_data(train(config, env_factory=Precise, show_progress=False).run_dir)
    assert data.obs.dtype == data.rewards.dtype == np.float32 and data.obs.shape == (30, 2, 3)
    assert data.observation_space["dtype"] == "float32" and data.observation_space["shape"] == [2, 3]


def test_the_same_recipe_gives_the_same_bits_and_another_seed_another_set() -> None:
    first = record_random(PENDULUM, 250, seed=3)
    assert (
        record_random(PENDULUM, 250, seed=3).sha256() == first.sha256() != record_random(PENDULUM, 250, seed=4).sha256()
    )
    longer = record_random(PENDULUM, 300, seed=3)
    np.testing.assert_array_equal(longer.obs[:250], first.obs)
    assert np.flatnonzero(first.truncated).tolist() == [199, 249] and not first.terminated.any()
    assert first.env_id == "Pendulum-v1" and first.action_space["high"] == ["2.0"]


@pytest.fixture(scope="module")
def agents(tmp_path_factory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("agents")
    configs = {algo: make_quick_config(algo, home, total_timesteps=40, num_envs=2) for algo in ("sac", "dqn")}
    return {algo: train(config, show_progress=False).run_dir for algo, config in configs.items()}


def test_an_agent_is_recorded_with_and_without_noise(agents) -> None:
    agent = load_agent(agents["sac"])
    best = record_policy(agent, PENDULUM, 60, seed=0)
    np.testing.assert_allclose(best.actions, agent.predict(best.obs), atol=1e-5)
    noisy = record_policy(agent, PENDULUM, 60, seed=0, noise=0.5)
    assert record_policy(agent, PENDULUM, 60, seed=0, noise=0.5).sha256() == noisy.sha256()
    off = (noisy.actions - agent.predict(noisy.obs))[np.abs(noisy.actions) < 2]
    assert 0.6 < off.std() < 1.2  # 0.5 in the library's units is 1.0 in Pendulum's, less what the bounds cut off


def test_choices_are_noisy_with_a_probability(agents) -> None:
    agent = load_agent(agents["dqn"])
    data = record_policy(agent, CARTPOLE, 400, seed=0, noise=0.5)
    other = data.actions != agent.predict(data.obs)
    assert 0.15 < other.mean() < 0.35  # half of the random half
    best = record_policy(agent, CARTPOLE, 50, seed=0)
    np.testing.assert_array_equal(best.actions, agent.predict(best.obs))
    with pytest.raises(UserError, match=r"noise must be a probability, got 1\.5"):
        record_policy(agent, CARTPOLE, 50, seed=0, noise=1.5)
    for noise in (-1, float("inf"), float("nan")):
        with pytest.raises(UserError, match=f"noise must be a number >= 0, got {noise}"):
            record_policy(agent, CARTPOLE, 50, seed=0, noise=noise)
    said = (
        "the agent was trained on observations of shape (4,) (float32) and 2 choices, Pendulum-v1 has observations of "
        "shape (3,) (float32) and actions of shape (1,)"
    )
    with pytest.raises(UserError, match=re.escape(said)):
        record_policy(agent, PENDULUM, 50, seed=0)


def test_what_cannot_be_recorded_is_refused(monkeypatch) -> None:
    with pytest.raises(UserError, match="dataset_size must be >= 2, got 1"):
        record_random(PENDULUM, 1, seed=0)
    monkeypatch.setattr(recipes, "free_memory", lambda: 2 * 38 * 100)
    with pytest.raises(UserError, match=r"dataset_size 200 needs 0.0 GiB, 0.0 GiB are available; at most 100 fit"):
        record_random(PENDULUM, 200, seed=0)


def test_a_replay_is_one_environment_after_the_other(tmp_path: Path) -> None:
    config = make_quick_config(
        "sac", tmp_path, {"learning_starts": 1000}, env_id="<counting>", seeds=(0, 1), num_envs=3, total_timesteps=60,
        checkpoint_interval=21, eval_episodes=0,
    )  # fmt: skip
    result = train(config, env_factory=Counting, show_progress=False)
    data = load_data(result.run_dir)
    assert len(data) == 2 * 60
    check_counting(data)
    assert data.env_id == "<counting>" and load_data(result.checkpoint_path).sha256() == data.sha256()
    # Of each of the six environments the recording ends after its 20 steps.
    assert (data.terminated | data.truncated)[19::20].all()


def test_a_replay_is_loaded_as_asked_or_refused(tmp_path: Path, monkeypatch) -> None:
    config = make_quick_config("sac", tmp_path, env_id="<counting>", total_timesteps=60, eval_episodes=0)
    run_dir = train(config, env_factory=Counting, show_progress=False).run_dir
    with pytest.raises(UserError, match=r"its replay needs 0.0 GiB of memory, 0.0 GiB are available"):
        load_data(run_dir, memory_share=0)
    read = replay_data._segments

    def with_nan(*arguments: Any) -> Any:
        rows = read(*arguments)
        rows["rewards"][0, 7] = np.nan
        return rows

    monkeypatch.setattr(replay_data, "_segments", with_nan)
    with pytest.raises(UserError, match="NaN or infinity in rewards: 1 of 60 rows, the first is row 7; leave them out"):
        load_data(run_dir)
    assert len(load_data(run_dir, drop_nonfinite=True)) == 59


@pytest.mark.parametrize("interval", [1000, 17])  # written as one segment, or in several that reach back further
def test_a_replay_that_wrapped_holds_the_newest(interval: int, tmp_path: Path) -> None:
    config = make_quick_config(
        "sac", tmp_path, {"learning_starts": 1000, "buffer_capacity": 30}, env_id="<counting>", total_timesteps=100,
        checkpoint_interval=interval, eval_episodes=0,
    )  # fmt: skip
    data = load_data(train(config, env_factory=Counting, show_progress=False).run_dir)
    assert len(data) == 30
    check_counting(data)


def codecs(env_id: str) -> tuple[ObservationCodec, ActionCodec]:
    env = gym.make(env_id)
    return ObservationCodec(env.observation_space), ActionCodec(env.action_space)


def test_a_learner_gets_its_own_units() -> None:
    data = record_random(PENDULUM, 250, seed=0)
    dataset = training_data(data, *codecs("Pendulum-v1"), "here")
    torch.testing.assert_close(dataset.actions, torch.from_numpy(data.actions) / 2)
    assert dataset.actions.abs().max() <= 1 and dataset.actions.dtype == torch.float32
    assert not dataset.dones.any() and dataset.truncations.nonzero().flatten().tolist() == [199, 249]
    assert dataset.with_discounted_returns_to_go(gamma=1.0).returns_to_go[199] == dataset.rewards[199]


def test_numbered_states_are_one_hot_and_come_back() -> None:
    data = record_random(EnvSource("FrozenLake-v1"), 80, seed=0)
    assert data.obs.shape == (80,) and data.obs.max() <= 15
    dataset = training_data(data, *codecs("FrozenLake-v1"), "here")
    assert dataset.obs.shape == (80, 16) and dataset.obs.argmax(1).tolist() == data.obs.tolist()
    assert dataset.obs.sum() == 80 and dataset.actions.dtype == torch.int64


def test_one_hot_rows_take_rows_times_states_and_a_file_cannot_ask_for_more(tmp_path: Path) -> None:
    states = 2**20  # squared, four terabytes
    observation = ObservationCodec(gym.spaces.Discrete(states, start=5))
    rows = observation.encode_rows(np.array([5, 7, states + 4]))
    assert rows.shape == (3, states) and rows.argmax(1).tolist() == [0, 2, states - 1] and rows.sum() == 3
    single = np.zeros(states, np.float32)
    observation.encode(7, single)
    assert np.array_equal(rows[1], single)
    for number in (2**24 + 1, 2**62, 0, -1):
        with pytest.raises(ValueError, match=f"a space of {number} choices is not supported"):
            space_from_dict({"kind": "discrete", "n": number, "start": 0})
    assert space_from_dict({"kind": "discrete", "n": 2**24, "start": 0}).n == 2**24
    data = changed(record_random(EnvSource("CartPole-v1"), 4, seed=0), actions=np.array([0, 1, 2**63, 1], np.uint64))
    with pytest.raises(UserError, match=r"here: actions must be < 16777216, got 9223372036854775808"):
        dataset_spaces(data, "here")


def changed(data: Transitions, **changes: Any) -> Transitions:
    return Transitions(**{**data.arrays(), **changes})


@pytest.mark.parametrize(
    ("env_id", "changes", "message"),
    [
        ("Pendulum-v1", {"actions": np.float32([[0], [2.5], [-9], [0]])},
         r"here: actions must be in Box\(-2.0, 2.0, \(1,\), float32\): 2 of 4 rows are not, row 1 is \[2.5\]; "
         r"clip them with clip_actions=True"),
        ("Pendulum-v1", {"actions": np.zeros((4, 2), np.float32)}, r"actions are float32 \(4, 2\), the environment"),
        ("Pendulum-v1", {"actions": np.zeros(4, np.int64)}, r"actions are int64 \(4,\), the environment has Box"),
        ("Pendulum-v1", {"obs": np.zeros((4, 5)), "next_obs": np.zeros((4, 5))},
         r"observations are of shape \(5,\), the environment's are \(3,\)"),
        ("CartPole-v1", {"actions": np.float32([[0], [1], [1], [0]])},
         r"actions are float32 \(4, 1\), the environment has Discrete\(2\)"),
        ("CartPole-v1", {"actions": np.array([0, 2, 1, -1])},
         r"actions must be in Discrete\(2\): 2 of 4 rows are not, row 1 is 2"),
        ("FrozenLake-v1", {"obs": np.array([0, 1, 99, 2])},
         r"observations must be in Discrete\(16\): 1 of 4 rows are not, row 2 is 99"),
    ],
)  # fmt: skip
def test_data_that_does_not_fit_the_environment_is_refused(env_id: str, changes, message: str) -> None:
    data = record_random(EnvSource(env_id), 4, seed=0)
    with pytest.raises(UserError, match=message):
        training_data(changed(data, **changes), *codecs(env_id), "here")


def test_actions_are_clipped_on_request_and_rounding_is_forgiven() -> None:
    data = record_random(PENDULUM, 4, seed=0)
    wide = changed(data, actions=np.float32([[2.5], [-9], [1], [0]]))
    assert training_data(wide, *codecs("Pendulum-v1"), "here", clip_actions=True).actions.tolist() == [
        [1],
        [-1],
        [0.5],
        [0],
    ]
    rounded = changed(data, actions=np.float32([[2.000001], [-2.000001], [1], [0]]))
    assert training_data(rounded, *codecs("Pendulum-v1"), "here").actions.tolist() == [[1], [-1], [0.5], [0]]
