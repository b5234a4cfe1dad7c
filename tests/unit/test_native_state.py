"""Exact state of MuJoCo environments: saved, restored elsewhere, and the same future."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.snapshots import native_state, restore_native
from rl_training.envs.host.vector import SeededEnvs

MUJOCO = ["Ant", "HalfCheetah", "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum",
          "Pusher", "Reacher", "Swimmer", "Walker2d"]  # fmt: skip


def random_actions(env, count: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.uniform(env.action_space.low, env.action_space.high, (count, *env.action_space.shape)).astype(np.float32)


@pytest.mark.parametrize("name", MUJOCO)
def test_a_restored_mujoco_environment_has_the_same_future(name: str) -> None:
    pytest.importorskip("mujoco")
    env, other = (gym.make(f"{name}-v5", disable_env_checker=True) for _ in range(2))
    actions = random_actions(env, 80)
    env.reset(seed=3)
    for step, action in enumerate(actions[:37]):
        if any(env.step(action)[2:4]):
            env.reset(seed=step)
    other.reset(seed=99)
    assert restore_native(other, native_state(env))
    for action in actions[37:]:
        mine, theirs = env.step(action), other.step(action)
        assert np.array_equal(mine[0], theirs[0]) and mine[1:4] == theirs[1:4]
        if mine[2] or mine[3]:
            break


def test_the_time_limit_travels_along() -> None:
    pytest.importorskip("mujoco")
    env, other = (gym.make("HalfCheetah-v5", max_episode_steps=10) for _ in range(2))
    env.reset(seed=0)
    other.reset(seed=0)
    actions = random_actions(env, 10)
    for action in actions[:7]:
        env.step(action)
    restore_native(other, native_state(env))
    truncated = [other.step(action)[3] for action in actions[7:]]
    assert truncated == [False, False, True]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_others_are_replayed(env_id: str) -> None:
    env = gym.make(env_id)
    env.reset(seed=0)
    assert native_state(env) is None


def test_a_wrapper_with_state_of_its_own_is_replayed() -> None:
    pytest.importorskip("mujoco")
    env = gym.wrappers.DelayObservation(gym.make("Hopper-v5"), delay=2)
    env.reset(seed=0)
    assert native_state(env) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_vector_snapshots_use_it_and_notice_a_state_of_another_model(workers: int) -> None:
    pytest.importorskip("mujoco")
    source = EnvSource("Ant-v5")
    envs = SeededEnvs(source, [1, 2], 2)
    restored = SeededEnvs(source, [1, 2], 2, workers=workers)
    try:
        envs.reset_all()
        rng = np.random.default_rng(1)
        for _ in range(20):
            envs.step(rng.uniform(-1, 1, (4, 8)).astype(np.float32))
            envs.advance()
        snapshot = envs.snapshot()
        assert all(len(state) for state in snapshot["states"])
        assert restored.restore(snapshot)
        for _ in range(20):
            action = rng.uniform(-1, 1, (4, 8)).astype(np.float32)
            envs.step(action)
            restored.step(action)
            assert np.array_equal(envs.next_obs, restored.next_obs) and np.array_equal(envs.rewards, restored.rewards)
            envs.advance()
            restored.advance()
        assert [len(log) for log in envs.logs] == [len(log) for log in restored.logs]
        snapshot["states"][3] = snapshot["states"][3][:-8]
        assert not restored.restore(snapshot)
        assert restored.episodes[3] == snapshot["episodes"][3] + 1
    finally:
        envs.close()
        restored.close()


@pytest.fixture
def make_pong():
    ale_py = pytest.importorskip("ale_py")
    gym.register_envs(ale_py)
    return lambda **kwargs: gym.make("ALE/Pong-v5", obs_type="ram", **kwargs)


@pytest.mark.sweep
@pytest.mark.parametrize("trial", range(6))
def test_a_restored_atari_game_has_the_same_future(trial: int, make_pong) -> None:
    env, other = (make_pong(repeat_action_probability=0.0) for _ in range(2))
    actions = np.random.default_rng(trial).integers(6, size=120).tolist()
    env.reset(seed=trial)
    other.reset(seed=5)
    for action in actions[: 30 + trial]:
        env.step(action)
    assert restore_native(other, native_state(env))
    for action in actions[30 + trial :]:
        mine, theirs = env.step(action), other.step(action)
        assert np.array_equal(mine[0], theirs[0]) and mine[1:4] == theirs[1:4]


def test_an_atari_game_with_sticky_actions_is_replayed(make_pong) -> None:
    env = make_pong()
    env.reset(seed=0)
    assert native_state(env) is None
