"""The off-policy loop: updates learn from the transitions of earlier steps, and are as many as they always were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import make_quick_config

from rl_training.algorithms.base import Learner
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.envs.device.base import DeviceEnv
from rl_training.envs.host_envs import HostEnvs
from rl_training.run.callbacks import Callback
from rl_training.run.run import train

ACT, LEARN, STEP, STORE = "act", "learn", "step", "store"
BITS = {"env_id": "rl_training/BitFlip-v0", "env_kwargs": {"bits": 5}}
RUNS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # algorithm, settings, fields of the config
    "plain": ("sac", {"normalize_observations": True}, {}),
    "two seeds, three environments": ("td3", {"train_frequency": 4}, {"seeds": (3, 1), "num_envs": 3}),
    "priorities and n-step": ("rainbow_dqn", {"n_step": 3}, {}),
    "relabelled": ("dqn", {"her": {"n": 4}}, BITS),
    "on the device": ("sac", {}, {"env_id": "torch/Pendulum-v1", "num_envs": 4}),
    "continued online": ("iql", {"offline_steps": 11, "learning_starts": 7}, {"total_timesteps": 60}),
    "images": ("drq", {}, {"total_timesteps": 40}),
}


class Trace:
    """The events of a run in their order, and what each batch was drawn from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.drawn: list[tuple[int, int, int]] = []  # by batch: actions chosen, rows stored, the newest row drawn
        self.rewards: list[tuple[int, float]] = []  # by batch: actions chosen, the highest reward
        for owner, name, event in [
            (Learner, "act_collect", ACT), (Learner, "act_random", ACT), (Learner, "train", LEARN),
            (HostEnvs, "step", STEP), (DeviceEnv, "step", STEP), (ReplayBuffer, "add", STORE),
        ]:  # fmt: skip
            monkeypatch.setattr(owner, name, self._noted(getattr(owner, name), event))
        gather = ReplayBuffer.gather

        def noted_gather(replay: ReplayBuffer, indices: torch.Tensor) -> Any:
            newest = replay.added - 1 - int(((replay.added - 1 - indices) % replay.capacity).min())
            batch, acts = gather(replay, indices), self.events.count(ACT)
            self.drawn.append((acts, replay.added, newest))
            self.rewards.append((acts, float(batch["rewards"].max())))
            return batch

        monkeypatch.setattr(ReplayBuffer, "gather", noted_gather)

    def _noted(self, inner: Any, event: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.events.append(event)
            return inner(*arguments, **keywords)

        return call

    def steps(self) -> list[list[str]]:
        """The events of each step of the environments."""
        starts = [place for place, event in enumerate(self.events) if event == ACT]
        return [self.events[a:b] for a, b in zip(starts, [*starts[1:], len(self.events)], strict=True)]


SWEPT = ("two seeds, three environments", "on the device", "continued online", "images")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.sweep if name in SWEPT else ()) for name in RUNS]
)
def test_updates_learn_from_earlier_steps_and_the_environments_step_after_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    algo, settings, fields = RUNS[name]
    config = make_quick_config(algo, tmp_path, settings, **{"eval_episodes": 0, "total_timesteps": 48, **fields})
    trace = Trace(monkeypatch)
    result = train(config, show_progress=False)
    steps = trace.steps()
    assert all(step in ([ACT, STEP, STORE], [ACT, LEARN, STEP, STORE]) for step in steps)
    assert sum(LEARN in step for step in steps) >= 5
    # While the k-th action waits, k - 1 vector steps are stored, and batches reach the newest of them.
    for acts, added, newest in trace.drawn:
        assert added == (acts - 1) * config.num_envs and newest < added
    assert any(newest == added - 1 for _, added, newest in trace.drawn)
    online = result.metrics["global_step"] - settings.get("offline_steps", 0)
    assert len(steps) * config.num_envs == online


class Counting(gym.Env):
    """One endless episode, whose reward is the number of its steps so far."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return np.zeros(1, np.float32), float(self.count), False, False, {}


def test_a_batch_never_has_the_reward_of_its_own_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, fields = Trace(monkeypatch), {"env_id": "<Counting>", "eval_episodes": 0, "total_timesteps": 60}
    train(make_quick_config("dqn", tmp_path, **fields), env_factory=lambda **_: Counting(), show_progress=False)
    assert [step for step, _ in trace.rewards] == list(range(21, 61))
    assert all(highest < step for step, highest in trace.rewards)
    assert any(highest == step - 1 for step, highest in trace.rewards)


class Updates(Callback):
    """The updates after every step."""

    def __init__(self) -> None:
        self.after: dict[int, int] = {}

    def on_step(self, session: Any) -> None:
        self.after[session.step] = session.gradient_steps


@pytest.mark.parametrize(
    ("num_envs", "settings", "expected"),
    [
        (1, {"learning_starts": 0}, {1: 1, 2: 2, 3: 3, 4: 4}),
        (1, {"learning_starts": 2}, {1: 0, 2: 0, 3: 1, 4: 2}),
        (1, {"learning_starts": 1, "train_frequency": 2, "gradient_updates_per_step": 3}, {2: 0, 3: 3, 4: 3, 5: 6}),
        (2, {"learning_starts": 3}, {2: 0, 4: 1, 6: 3, 8: 5}),
        (4, {"learning_starts": 2, "train_frequency": 3, "gradient_updates_per_step": 2}, {4: 0, 8: 4, 12: 6, 16: 8}),
        (4, {"learning_starts": 1}, {4: 3, 8: 7, 12: 11}),
        (3, {"learning_starts": 0, "train_frequency": 4}, {3: 0, 6: 1, 9: 2, 12: 3}),
    ],
)
def test_updates_after_every_step(num_envs: int, settings: Any, expected: dict[int, int], tmp_path: Path) -> None:
    """The numbers of updates that a step owes, worked out by hand."""
    updates, fields = Updates(), {"num_envs": num_envs, "total_timesteps": max(expected), "eval_episodes": 0}
    train(make_quick_config("dqn", tmp_path, settings, **fields), callbacks=[updates], show_progress=False)
    assert {step: updates.after[step] for step in expected} == expected


@pytest.mark.parametrize(("num_envs", "starts"), [(1, 0), (4, 3)])
def test_the_updates_of_the_first_step_wait_for_its_transitions(
    num_envs: int, starts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is stored that they could learn from."""
    fields = {"num_envs": num_envs, "total_timesteps": 4 * num_envs, "eval_episodes": 0}
    trace = Trace(monkeypatch)
    train(make_quick_config("dqn", tmp_path, {"learning_starts": starts}, **fields), show_progress=False)
    assert trace.steps() == [[ACT, STEP, STORE, LEARN], *[[ACT, LEARN, STEP, STORE]] * 3]
    assert trace.drawn[0][:2] == (1, num_envs)


@pytest.mark.parametrize(("starts", "expected"), [(0, [10, 11, 15, 16, 20]), (5, [10, 10, 10, 11, 15])])
def test_online_updates_wait_for_the_first_transition_of_the_replay(
    starts: int, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has rows of the dataset and of the replay, which is empty at the start of the online stage."""
    updates, trace = Updates(), Trace(monkeypatch)
    settings = {"offline_steps": 10, "learning_starts": starts, "dataset_size": 64}
    config = make_quick_config("iql", tmp_path, settings, total_timesteps=20, eval_episodes=0)
    train(config, callbacks=[updates], show_progress=False)
    assert [updates.after[step] for step in (10, 11, 15, 16, 20)] == expected
    learned_last = [step for step in trace.steps() if step[-1] == LEARN]
    assert learned_last == ([[ACT, STEP, STORE, LEARN]] if starts == 0 else [])
