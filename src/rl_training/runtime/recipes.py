"""Data sets that are made, not loaded: the same recipe gives the same transitions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np

from rl_training.core.checks import UserError, require
from rl_training.core.machine import free_memory, gibibytes
from rl_training.core.rng import stream
from rl_training.data.replay_buffer import Array, ReplayBuffer, replay_bytes
from rl_training.data.storage import MEMORY_SHARE
from rl_training.data.transitions import Transitions, check_values
from rl_training.envs.factory import EnvSource
from rl_training.envs.spaces import ActionCodec
from rl_training.envs.vector import SeededEnvs
from rl_training.runtime.agents import Agent
from rl_training.runtime.fitting import check_agent
from rl_training.runtime.off_policy import step_and_store
from rl_training.runtime.replay_data import replay_transitions

Policy = Callable[[Array, np.random.Generator, ActionCodec], Array]
Watcher = Callable[[int], None]


def record_random(source: EnvSource, size: int, seed: int, watch: Watcher | None = None) -> Transitions:
    """`size` transitions under uniformly random actions."""
    return _record(source, size, seed, lambda obs, rng, action: action.draw(rng, len(obs)), watch)


def record_policy(
    agent: Agent, source: EnvSource, size: int, seed: int, noise: float = 0.0, watch: Watcher | None = None
) -> Transitions:
    """`size` transitions of an agent's best actions with noise: of that standard deviation (actions being in [-1, 1]),
    or with that probability of a random choice."""
    require(noise >= 0, "noise", f">= 0, got {noise}")
    require(noise <= 1 or not agent.action.discrete, "noise", f"a probability, got {noise}")
    check_agent(agent.shape, source)

    def act(obs: Array, rng: np.random.Generator, action: ActionCodec) -> Array:
        best = agent.act(obs)
        if action.discrete:
            return np.where(rng.random(len(best)) < noise, action.draw(rng, len(best)), best)
        return np.clip(best + noise * rng.standard_normal(best.shape), -1, 1).astype(np.float32)

    return _record(source, size, seed, act, watch)


def _record(source: EnvSource, size: int, seed: int, act: Policy, watch: Watcher | None) -> Transitions:
    require(size >= 2, "dataset_size", f">= 2, got {size}")
    envs = SeededEnvs(source, [seed], num_envs=1, stream="data")
    with closing(envs):
        needed, room = replay_bytes(envs.shape, 1, size), int(MEMORY_SHARE * free_memory())
        if needed > room:
            raise UserError(
                f"dataset_size {size} needs {gibibytes(needed)}, {gibibytes(room)} are there for it; "
                f"at most {int(size * room / needed)} fit"
            )
        replay = ReplayBuffer(envs.shape, capacity=size, num_envs=1, seeds=1)
        envs.reset_all()
        for step in range(size):
            actions = act(envs.obs, stream(seed, "data", step), envs.action)
            step_and_store(envs, replay, actions[None])
            envs.advance()
            if watch is not None:
                watch(step + 1)
        made = replay_transitions(replay.read(0, size), 1, envs.observation, envs.action, source.env_id)
    return check_values(made, f"the recording of {source.env_id}", from_file=False)
