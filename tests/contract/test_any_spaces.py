"""Runs in environments with Dict, Tuple and multi-discrete spaces keep every promise of a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dict_envs import AnySpaces
from gymnasium import spaces
from resume_harness import whole_and_cut
from seed_harness import assert_same_bits, saved_arrays

import rl_training
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.run.run import train

QUICK = {"total_timesteps": 90, "eval_episodes": 1, "eval_interval": 40, "video": False, "report": False}
SETTINGS = {"learning_starts": 20, "batch_size": 16, "hidden_sizes": [16], "buffer_capacity": 64}
TASKS = [("dqn", "numbers", "multi_discrete"), ("sac", "numbers", "box"), ("dqn", "multi_binary", "multi_binary")]


def config(path: Path, algo: str, observation: str, action: str, **changes: Any) -> TrainConfig:
    settings = {**SETTINGS, **changes.pop("settings", {})}
    kwargs = {"observation": observation, "action": action}
    values: dict[str, Any] = {**QUICK, "checkpoint_interval": 30, "log_interval": 30, **changes}
    return TrainConfig(algo, "AnySpaces-v0", output_dir=path, algo_kwargs=settings, env_kwargs=kwargs, **values)


def run(path: Path, task: tuple[str, str, str], callbacks: Any = (), **changes: Any) -> Any:
    return train(config(path, *task, **changes), callbacks=callbacks, show_progress=False)


@pytest.mark.sweep
@pytest.mark.parametrize("task", TASKS, ids="-".join)
def test_a_cut_run_ends_in_the_same_bits(task: tuple[str, str, str], tmp_path: Path, monkeypatch) -> None:
    options = {"seeds": (0, 7), "num_envs": 2, "settings": {"normalize_observations": "mult" not in task[1]}}
    start = partial(run, Path("runs"), task, **options)
    assert whole_and_cut(start, 53, tmp_path, monkeypatch) == []


@pytest.mark.parametrize("task", TASKS[:2], ids="-".join)
def test_a_seed_among_others_is_the_seed_alone(task: tuple[str, str, str], tmp_path: Path) -> None:
    together = run(tmp_path / "together", task, seeds=(4, 2))
    alone = run(tmp_path / "alone", task, seeds=(2,))
    assert_same_bits(saved_arrays(together, 1), saved_arrays(alone, 0))


@pytest.mark.parametrize("task", TASKS, ids="-".join)
def test_an_agent_is_saved_evaluated_and_asked(task: tuple[str, str, str], tmp_path: Path) -> None:
    algo, observation, action = task
    cls = {"dqn": rl_training.DQN, "sac": rl_training.SAC}[algo]
    kwargs = {"observation": observation, "action": action}
    agent = cls(AnySpaces, env_kwargs=kwargs, output_dir=tmp_path, **{**QUICK, "total_timesteps": 40}, **SETTINGS)
    agent.learn()
    env = AnySpaces(observation, action)
    first, _ = env.reset(seed=1)
    chosen = agent.predict(first)
    assert env.action_space.contains(chosen)
    again = cls.load(agent.save(tmp_path / "agent"))
    assert np.array_equal(again.predict(first), chosen)


@pytest.mark.sweep
def test_a_joint_action_that_pays_is_found(tmp_path: Path) -> None:
    """The reward is the sum of the action: the best joint action of MultiDiscrete([2, 3]) from [0, 1] is [1, 3]."""
    made = run(tmp_path, TASKS[0], total_timesteps=400, settings={"learning_rate": 1e-2})
    assert made.metrics["eval_return_mean"] == 4.0 * 9


@pytest.mark.parametrize(
    ("algo", "space", "message"),
    [
        ("dqn", spaces.MultiBinary(10), "1024 joint actions, more than 512; use ppo, a2c"),
        ("sac", spaces.MultiDiscrete([2, 3]), "sac needs Box actions; AnySpaces-v0 has MultiDiscrete([2, 3]); use dqn"),
    ],
)
def test_an_action_space_that_an_algorithm_cannot_take(algo: str, space: Any, message: str, tmp_path: Path) -> None:
    class Made(AnySpaces):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.action_space = space

    with pytest.raises(UserError) as refused:
        train(config(tmp_path, algo, "numbers", "box"), env_factory=Made, show_progress=False)
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_dict_of_one_vector_learns_as_the_vector_does(tmp_path: Path) -> None:
    """The observation is the same array, so the bits are the same too."""
    import gymnasium as gym

    class AsDict(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = spaces.Dict(state=env.observation_space)

        def observation(self, observation: Any) -> Any:
            return {"state": observation}

    def made(wrap: bool) -> dict[str, torch.Tensor]:
        def make_env(**kwargs: Any) -> Any:
            env = gym.make("Pendulum-v1", **kwargs)
            return AsDict(env) if wrap else env

        values = TrainConfig(
            "sac", "<make_env>", output_dir=tmp_path / str(wrap), seeds=(0,), algo_kwargs=SETTINGS, **QUICK
        )
        return saved_arrays(train(values, env_factory=make_env, show_progress=False), 0)

    assert_same_bits(made(True), made(False))


def test_an_image_with_its_channels_last_is_named(tmp_path: Path) -> None:
    class Made(AnySpaces):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.observation_space = spaces.Dict(cam=spaces.Box(0, 255, (40, 40, 3), np.uint8), x=spaces.Discrete(2))

    with pytest.raises(UserError, match=r"gives \(40, 40, 3\), channels last; move the last axis of entry 'cam'"):
        train(config(tmp_path, "dqn", "numbers", "discrete"), env_factory=Made, show_progress=False)


def test_an_environment_without_spaces_is_named(tmp_path: Path) -> None:
    import gymnasium as gym

    with pytest.raises(UserError, match="it has no observation_space, which must be"):
        rl_training.DQN(type("NoSpaces", (gym.Env,), {}), output_dir=tmp_path).learn(show_progress=False)
