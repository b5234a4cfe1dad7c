"""Agents with random weights for any spaces, without training: for tests of what is done with a trained agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import SMALL_SETTINGS, settings_of, small_env
from gymnasium import spaces

from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.spaces import env_spec, make_codecs
from rl_training.run.agent import Agent

VECTOR = spaces.Box(-np.inf, np.inf, (3,), np.float32)


def fresh_agent(
    algo: str,
    observation: spaces.Space[Any] | None = None,
    action: spaces.Space[Any] | None = None,
    masked: bool = False,
    seeds: tuple[int, ...] = (0,),
    **settings: Any,
) -> Agent:
    """An agent for these spaces, or for the algorithm's small environment; its statistics are not the identity."""
    cls = learner_class(algo)
    env_id, env_kwargs = small_env(cls)
    if observation is None or action is None:
        env = EnvSource(env_id, dict(env_kwargs)).make()
        observation, action = observation or env.observation_space, action or env.action_space
        env.close()
    given = {**settings_of(algo, SMALL_SETTINGS), "sequence_length": 4, **settings}
    kwargs = settings_of(algo, given)
    config = TrainConfig(algo=algo, env_id=env_id, env_kwargs=env_kwargs, algo_kwargs=kwargs, seeds=seeds)
    codecs = make_codecs(observation, action, masked)
    learner = cls.create(env_spec(*codecs), parse(cls.settings_type, kwargs), seeds)
    if learner.normalizer is not None:
        rows = torch.randn(len(seeds), 40, learner.normalizer.mean.shape[1]) * 3 + 1
        learner.normalizer.running = True
        learner.observe_all(rows)
    return Agent(config, learner, *codecs)


def saved(agent: Agent, folder: Path, name: str = "agent.safetensors") -> Path:
    return agent.save(folder / name)
