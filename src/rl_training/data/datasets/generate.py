"""Generated datasets: the same settings give the same transitions."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, Protocol

import numpy as np

from rl_training.core.checks import UserError, require
from rl_training.core.machine import free_memory, gibibytes
from rl_training.core.rng import stream
from rl_training.core.specs import EnvSpec
from rl_training.data.datasets.array_store import MEMORY_SHARE, Array, layout_bytes
from rl_training.data.datasets.transitions import Transitions, check_values
from rl_training.envs.host.conformance import PLAIN, Takes, check_equal, check_spaces, classified, matching
from rl_training.envs.host.episode_bound import DEFAULT_BOUND, EpisodeBound
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.spaces import space_to_dict
from rl_training.envs.spaces.masks import allowed_actions

# From encoded observations, its state (None: an episode starts) and random numbers to actions and the next state.
Policy = Callable[[Array, Any, np.random.Generator, SeededEnvs], tuple[Array, Any]]
ProgressCallback = Callable[[int], None]


class DatasetAgent(Protocol):
    """A trained policy that generates a dataset."""

    @property
    def spec(self) -> EnvSpec: ...

    def act(self, rows: Array, state: Any) -> tuple[Array, Any]:
        """Actions in the library's units for encoded observations (rows, ...), and the next state; None starts anew."""


def record_random(
    source: EnvSource,
    size: int,
    seed: int,
    progress: ProgressCallback | None = None,
    bound: EpisodeBound = DEFAULT_BOUND,
) -> Transitions:
    """`size` transitions under uniformly random actions."""

    def act(obs: Array, state: Any, rng: np.random.Generator, envs: SeededEnvs) -> tuple[Array, Any]:
        return envs.action.spec.sample(rng, len(obs)), None

    return _record(source, size, seed, act, progress, bound)


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

    `noise` is a standard deviation (actions being in [-1, 1]), or the probability of a random choice, which is one that
    the action mask allows where the agent takes masks.
    """
    require(0 <= noise < math.inf, "noise", f"a number >= 0, got {noise}")
    require(noise <= agent.spec.action.max_noise, "noise", f"a probability, got {noise}")
    takes = Takes.of(agent.spec)
    check_equal(agent.spec, check_spaces(source, takes), source)

    def act(obs: Array, state: Any, rng: np.random.Generator, envs: SeededEnvs) -> tuple[Array, Any]:
        actions, state = agent.act(obs, state)
        spec = envs.action.spec
        if not takes.masks:
            return spec.perturbed(actions, noise, rng), state
        return spec.perturbed(actions, noise, rng, partial(allowed_actions, spec, envs.observation.masks(obs))), state

    return _record(matching(source, agent.spec), size, seed, act, progress, bound, takes)


def _record(
    source: EnvSource,
    size: int,
    seed: int,
    act: Policy,
    progress: ProgressCallback | None,
    bound: EpisodeBound,
    takes: Takes = PLAIN,
) -> Transitions:
    require(size >= 2, "dataset_size", f">= 2, got {size}")
    envs = SeededEnvs(classified(source, takes), [seed], num_envs=1, stream="data")
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
        last, length, cut, state = bound.steps(envs.spec.episode_limit), 0, 0, None
        for step in range(size):
            rows, rng = envs.obs.astype(envs.observation.dtype), stream(seed, "data", step)
            actions, state = act(rows, state, rng, envs)
            envs.step(actions)
            length += 1
            if length == last and not envs.terminated[0] and not envs.truncated[0]:
                envs.truncated[0], cut = True, cut + 1
            if envs.terminated[0] or envs.truncated[0]:
                length, state = 0, None
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
