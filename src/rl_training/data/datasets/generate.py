"""Generated datasets: the same settings give the same transitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from typing import Any, Protocol

import numpy as np

from rl_training.core.checks import UserError, require
from rl_training.core.machine import free_memory, gibibytes
from rl_training.core.rng import stream
from rl_training.core.specs import ArraySpec, EnvSpec
from rl_training.data.datasets.array_store import MEMORY_SHARE, Array, layout_bytes
from rl_training.data.datasets.transitions import Transitions, check_values
from rl_training.envs.host.conformance import check_equal, check_spaces, classified
from rl_training.envs.host.episode_bound import DEFAULT_BOUND, EpisodeBound
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.spaces import space_to_dict

Policy = Callable[[Array, np.random.Generator, ArraySpec], Array]
ProgressCallback = Callable[[int], None]


class DatasetAgent(Protocol):
    """A trained policy that generates a dataset."""

    @property
    def spec(self) -> EnvSpec: ...

    def act(self, rows: Array) -> Array:
        """Actions in the library's units for encoded observations (rows, ...)."""


def record_random(
    source: EnvSource,
    size: int,
    seed: int,
    progress: ProgressCallback | None = None,
    bound: EpisodeBound = DEFAULT_BOUND,
) -> Transitions:
    """`size` transitions under uniformly random actions."""
    return _record(source, size, seed, lambda obs, rng, action: action.sample(rng, len(obs)), progress, bound)


def record_policy(
    agent: DatasetAgent,
    source: EnvSource,
    size: int,
    seed: int,
    noise: float = 0.0,
    progress: ProgressCallback | None = None,
    bound: EpisodeBound = DEFAULT_BOUND,
) -> Transitions:
    """`size` transitions under an agent's greedy actions with noise.

    `noise` is a standard deviation (actions being in [-1, 1]), or the probability of a random choice.
    """
    require(0 <= noise < math.inf, "noise", f"a number >= 0, got {noise}")
    require(noise <= agent.spec.action.max_noise, "noise", f"a probability, got {noise}")
    check_equal(agent.spec, check_spaces(source), source)

    def act(obs: Array, rng: np.random.Generator, action: ArraySpec) -> Array:
        return action.perturbed(agent.act(obs), noise, rng)

    return _record(source, size, seed, act, progress, bound)


def _record(
    source: EnvSource, size: int, seed: int, act: Policy, progress: ProgressCallback | None, bound: EpisodeBound
) -> Transitions:
    require(size >= 2, "dataset_size", f">= 2, got {size}")
    envs = SeededEnvs(classified(source), [seed], num_envs=1, stream="data")
    with closing(envs):
        _keep_precision(envs)
        first = _row(envs, envs.action.spec.sample(stream(seed, "data"), 1))
        layout = {name: ((size, *row.shape[1:]), row.dtype) for name, row in first.items()}
        needed, available = layout_bytes(layout), int(MEMORY_SHARE * free_memory())
        if needed > available:
            raise UserError(
                f"dataset_size {size} needs {gibibytes(needed)}, {gibibytes(available)} are available; "
                f"at most {int(size * available / needed)} fit"
            )
        arrays: dict[str, Any] = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}
        envs.reset_all()
        last, length, cut = bound.steps(envs.spec.episode_limit), 0, 0
        for step in range(size):
            actions = act(envs.obs.astype(envs.observation.dtype), stream(seed, "data", step), envs.action.spec)
            envs.step(actions)
            length += 1
            if length == last and not envs.terminated[0] and not envs.truncated[0]:
                envs.truncated[0], cut = True, cut + 1
            if envs.terminated[0] or envs.truncated[0]:
                length = 0
            for name, row in _row(envs, actions).items():
                arrays[name][step] = row[0]
            envs.advance()
            if progress is not None:
                progress(step + 1)
        spaces = space_to_dict(envs.observation.space), space_to_dict(envs.action.space)
    arrays["truncated"][-1] |= ~arrays["terminated"][-1]  # the end of the recording ends its episode
    episodes = int((arrays["terminated"] | arrays["truncated"]).sum())
    notes = (f"the recording of {source.env_id}: {bound.report(cut, episodes)}",) if cut else ()
    made = Transitions(**arrays, env_id=source.env_id, observation_space=spaces[0], action_space=spaces[1], notes=notes)
    return check_values(made, f"the recording of {source.env_id}", from_file=False, hint="")


def _keep_precision(envs: SeededEnvs) -> None:
    """Record observations and rewards in the environment's dtype, which float32 would round."""
    if envs.observation.keeps_precision:
        envs.obs, envs.next_obs = (np.zeros(envs.obs.shape, envs.observation.space.dtype) for _ in range(2))
    envs.rewards = np.zeros(envs.size, np.float64)


def _row(envs: SeededEnvs, actions: Array) -> dict[str, Array]:
    """The step that was just taken, in the environment's own shapes, units and dtypes."""
    return {
        "obs": envs.observation.to_file(envs.obs),
        "actions": envs.action.to_env(actions),
        "rewards": envs.rewards,
        "next_obs": envs.observation.to_file(envs.next_obs),
        "terminated": envs.terminated,
        "truncated": envs.truncated,
    }
