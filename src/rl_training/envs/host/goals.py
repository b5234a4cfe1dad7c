"""Rewards of goals other than those of an episode, by the environment's own `compute_reward`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from rl_training.core.checks import UserError, shown
from rl_training.core.rng import stream
from rl_training.core.specs import Entry
from rl_training.envs.host.factory import Env, EnvSource, call_environment
from rl_training.envs.spaces import ActionCodec, ObservationCodec
from rl_training.envs.spaces.leaves import Array

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"
KEYS = ("observation", ACHIEVED, DESIRED)
PROBE_STEPS = 100
ROUNDING = 1e-5  # rewards of a batch and of its rows may round differently


class Goals:
    """The goals in the observations of an environment, and the rewards that other goals would have given.

    One instance of the environment computes them. Its `compute_reward(achieved_goal, desired_goal, info)` must be a
    function of the two goals alone, with `info` empty; `compute_terminated`, where there is one, too.
    """

    def __init__(self, source: EnvSource) -> None:
        self.name = source.env_id
        self.env = source.make()
        try:
            self.observation = _goal_codec(self.env, self.name)
            self.achieved, self.desired = (self._entry(name) for name in (ACHIEVED, DESIRED))
            self._leaf = next(leaf for leaf in self.observation.leaves if leaf.name == ACHIEVED)
            self._reward = self._function("compute_reward")
            if self._reward is None:
                raise UserError(f"her needs an environment with compute_reward; {self.name} has none")
            self._terminated = self._function("compute_terminated")
            self._by_row = {"compute_reward": False, "compute_terminated": False}
            self._check()
        except BaseException:
            self.env.close()
            raise

    def _entry(self, name: str) -> Entry:
        return next(entry for entry in self.observation.spec.entries if entry.name == name)

    def _function(self, name: str) -> Callable[..., Any] | None:
        return self.env.get_wrapper_attr(name) if self.env.has_wrapper_attr(name) else None

    def rewards(self, achieved: Array, desired: Array) -> Array:
        """(rows,) the rewards of goals, as they are in encoded observations: (rows, size)."""
        assert self._reward is not None
        return self._call("compute_reward", self._reward, self._decoded(achieved), self._decoded(desired))

    def terminated(self, achieved: Array, desired: Array) -> Array | None:
        """(rows,) whether the goals end an episode; None: the environment does not compute that."""
        if self._terminated is None:
            return None
        goals = self._decoded(achieved), self._decoded(desired)
        return self._call("compute_terminated", self._terminated, *goals)

    def close(self) -> None:
        self.env.close()

    def _decoded(self, goals: Array) -> Array:
        shape = (len(goals), *self._leaf.shape)
        return self._leaf.decode_rows(goals.reshape(shape)).astype(self._leaf.space.dtype, copy=False)

    def _call(self, name: str, function: Callable[..., Any], achieved: Array, desired: Array) -> Array:
        """One call for all rows, or one for each where the environment takes single goals only."""

        def call() -> Array:
            if self._by_row[name]:
                return np.array([function(a, d, {}) for a, d in zip(achieved, desired, strict=True)])
            return np.asarray(function(achieved, desired, {}))

        found = call_environment(self.name, name, call)
        if found.shape != (len(achieved),):
            what = f"{name} must return one number for each of {len(achieved)} goals, got shape {found.shape}"
            raise UserError(f"environment {self.name!r}: {what}")
        numbers = found.astype(np.float32)
        if not np.isfinite(numbers).all():
            raise UserError(f"environment {self.name!r}: {name} returned NaN or infinity")
        return numbers

    # --- the check before training ---------------------------------------------------------------------------------
    def _check(self) -> None:
        """Reject an environment whose rewards are not those of its functions."""
        steps = self._probe()
        for name, function, key in (
            ("compute_reward", self._reward, "rewards"),
            ("compute_terminated", self._terminated, "terminated"),
        ):
            if function is None:
                continue
            goals = (steps[ACHIEVED], steps[DESIRED])
            self._by_row[name] = True
            each = self._call(name, function, *goals)
            self._by_row[name] = not _same_for_all(function, goals, each)
            wrong = np.flatnonzero(~np.isclose(each, steps[key].astype(np.float32), ROUNDING, ROUNDING))
            if len(wrong):
                row, what = wrong[0], "reward" if key == "rewards" else "terminated"
                raise UserError(
                    f"environment {self.name!r}: {name}(achieved_goal, desired_goal, {{}}) gives {each[row]:g} where "
                    f"step gave {what} {steps[key][row]:g}; her needs a function of the two goals alone"
                )

    def _probe(self) -> dict[str, Array]:
        """Goals, rewards and ends of some steps with random actions."""
        action, rng = ActionCodec(self.env.action_space), stream(0, "conformance")
        actions = action.to_env(action.spec.sample(rng, PROBE_STEPS))
        found: dict[str, list[Any]] = {ACHIEVED: [], DESIRED: [], "rewards": [], "terminated": []}
        ended, episode = True, 0
        for one in actions:
            if ended:
                call_environment(self.name, "reset", partial(self.env.reset, seed=episode))
                episode += 1
            answer = call_environment(self.name, "step", partial(self.env.step, one.copy()))
            obs, reward, terminated, truncated, _ = answer
            ended = bool(terminated or truncated)
            values = (obs[ACHIEVED], obs[DESIRED], reward, terminated)
            for name, value in zip(found, values, strict=True):
                found[name].append(np.array(value))
        return {name: np.stack(values) for name, values in found.items()}


def _same_for_all(function: Callable[..., Any], goals: tuple[Array, Array], each: Array) -> bool:
    """Whether one call for many goals gives what a call for each of them gives."""
    try:
        found = np.asarray(function(*goals, {}))
    except Exception:  # it takes single goals only
        return False
    return found.shape == each.shape and bool(np.allclose(found.astype(np.float32), each, ROUNDING, ROUNDING))


def _goal_codec(env: Env, name: str) -> ObservationCodec:
    space = env.observation_space
    found: Mapping[str, Any] = space.spaces if isinstance(space, spaces.Dict) else {}
    if set(found) != set(KEYS):
        keys = f"the keys {', '.join(found)}" if found else shown(space)
        raise UserError(f"her needs Dict observations with the keys {', '.join(KEYS)}; {name} has {keys}")
    codec = ObservationCodec(space)
    if codec.spec.kind != "vector":
        raise UserError(f"her needs observations of numbers; {name} has images")
    shapes = {entry.name: entry.shape for entry in codec.spec.entries}
    if shapes.get(ACHIEVED) is None or shapes[ACHIEVED] != shapes.get(DESIRED):
        kinds = f"{found[ACHIEVED]} and {found[DESIRED]}"
        raise UserError(f"her needs goals that are arrays of one shape; {name} has {kinds}")
    return codec
