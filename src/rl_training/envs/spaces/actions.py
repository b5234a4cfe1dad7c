"""Conversion of actions between the library's units and those of an environment.

Inside the library a continuous action lies in [-1, 1], or is as it is where its space has no bounds, and a discrete one
is an index from 0. The joint actions of a MultiDiscrete or MultiBinary space are one discrete action, as long as there
are at most `MAX_JOINT_ACTIONS` of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.core.checks import UserError
from rl_training.core.specs import MAX_JOINT_ACTIONS, ArraySpec, continuous, discrete, multi_discrete

Array = NDArray[Any]
MAX_PYTHON_NUMBERS = 32  # in one action, for which Python takes less time than numpy


class ActionCodec:
    """Converts actions from the library's units to those of the environment, and back."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space: Any = space
        if isinstance(space, spaces.Discrete):
            self.coding: _Coding = _Choice(space)
        elif isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
            self.coding = _Choices(space)
        elif isinstance(space, spaces.Box):
            _check_box(space)
            self.coding = _Numbers(space) if _has_bounds(space) else _UnboundedNumbers(space)
        else:
            raise UserError(
                f"action space {type(space).__name__} is not supported; supported: Box, Discrete, MultiDiscrete, "
                "MultiBinary"
            )
        self.spec = self.coding.spec
        self._is_array = bool(self.env_shape)

    def require_bounds(self) -> None:
        """Reject a Box without bounds, for an algorithm that needs them or for a dataset."""
        if not self.spec.bounded:
            raise UserError(f"action space {self.space} is unbounded; give it bounds, e.g. {_bounding(self.space)}")

    @property
    def env_shape(self) -> tuple[int, ...]:
        """The shape of one action in the environment's units."""
        return tuple(self.space.shape or ())

    @property
    def env_dtype(self) -> np.dtype[Any]:
        """The dtype of actions in the environment's units."""
        return np.dtype(np.int64 if isinstance(self.space, spaces.Discrete) else self.space.dtype)

    def one(self, actions: Array) -> Any:
        """The first action of a batch in the environment's units, as `step` takes it: an int or an array."""
        return actions[0] if self._is_array else int(actions[0])

    @property
    def can_be_clipped(self) -> bool:
        return isinstance(self.space, spaces.Box)

    def accepts(self, actions: Array) -> bool:
        """Whether rows of a dataset have the shape and type of this space's actions."""
        if actions.shape[1:] != self.env_shape:
            return False
        return self.can_be_clipped or actions.dtype.kind != "f"

    def outside(self, actions: Array, rounding: float) -> NDArray[np.bool_]:
        """Which rows, in the library's units, are outside the space by more than a rounding error."""
        return self.coding.outside(actions, rounding)

    def contains(self, actions: Array) -> bool:
        """Whether all actions, in the environment's units, are in its space."""
        return self.coding.contains(actions)

    def to_env(self, actions: Array) -> Array:
        """A batch of the library's actions in the environment's units and dtype."""
        return self.coding.to_env(actions)

    def from_env(self, actions: Array) -> Array:
        """The inverse of `to_env`."""
        return self.coding.from_env(actions)


class _Coding:
    """The conversion for one type of space."""

    spec: ArraySpec

    def outside(self, actions: Array, rounding: float) -> NDArray[np.bool_]:
        raise NotImplementedError

    def contains(self, actions: Array) -> bool:
        raise NotImplementedError

    def to_env(self, actions: Array) -> Array:
        raise NotImplementedError

    def from_env(self, actions: Array) -> Array:
        raise NotImplementedError


class _Choice(_Coding):
    """A Discrete space."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.count, self.start = int(space.n), int(space.start)
        self.spec = discrete(self.count)

    def outside(self, actions: Array, rounding: float) -> NDArray[np.bool_]:
        return np.asarray((actions < 0) | (actions >= self.count))

    def contains(self, actions: Array) -> bool:
        return bool(((actions >= self.start) & (actions < self.start + self.count)).all())

    def to_env(self, actions: Array) -> Array:
        return actions + self.start if self.start else actions

    def from_env(self, actions: Array) -> Array:
        return actions.astype(np.int64) - self.start


class _Choices(_Coding):
    """A MultiDiscrete or MultiBinary space: its joint actions as one choice, or one choice for each element."""

    def __init__(self, space: spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        if isinstance(space, spaces.MultiBinary):
            counts, start = np.full(space.shape, 2, np.int64), np.zeros(space.shape, np.int64)
        else:
            counts, start = np.asarray(space.nvec, np.int64), np.asarray(space.start, np.int64)
        self.space, self.counts, self.start = space, counts.reshape(-1), start.reshape(-1)
        joint = math.prod(self.counts.tolist())
        self.joint = joint <= MAX_JOINT_ACTIONS
        counts = self.counts.tolist()
        self.spec = discrete(joint, counts) if self.joint else multi_discrete(counts)

    def outside(self, actions: Array, rounding: float) -> NDArray[np.bool_]:
        if self.joint:
            return np.asarray((actions < 0) | (actions >= self.spec.choices))
        return np.asarray(((actions < 0) | (actions >= self.counts)).any(-1))

    def contains(self, actions: Array) -> bool:
        index = actions.reshape(len(actions), -1).astype(np.int64) - self.start
        return bool(((index >= 0) & (index < self.counts)).all())

    def to_env(self, actions: Array) -> Array:
        index = np.stack(np.unravel_index(actions, self.counts.tolist()), -1) if self.joint else actions
        return (index + self.start).reshape(len(actions), *self.space.shape).astype(self.space.dtype)

    def from_env(self, actions: Array) -> Array:
        index = actions.reshape(len(actions), -1).astype(np.int64) - self.start
        if not self.joint:
            return index
        strides = np.concatenate([np.cumprod(self.counts[::-1])[::-1][1:], [1]])
        return np.asarray((index * strides).sum(-1))


class _Numbers(_Coding):
    """A bounded Box space; its elements as one vector in [-1, 1]."""

    def __init__(self, space: spaces.Box) -> None:
        self.space = space
        self.low = space.low.astype(np.float64)
        high = space.high.astype(np.float64)
        self.half_range = (high - self.low) / 2
        limits = (self.low, self.half_range, high)
        vector = len(space.shape) == 1 and space.shape[0] <= MAX_PYTHON_NUMBERS
        self._one_row = (1, *space.shape) if vector else None
        self._listed = [one.ravel().tolist() for one in limits]
        # One number where it is the same for all elements, since numpy takes long for many short rows.
        self._limits = [one.flat[0] if (one == one.flat[0]).all() else one for one in limits]
        self.spec = continuous(math.prod(space.shape))

    def outside(self, actions: Array, rounding: float) -> NDArray[np.bool_]:
        return np.asarray((np.abs(actions) > 1 + rounding).any(1))

    def contains(self, actions: Array) -> bool:
        return bool(((actions >= self.space.low) & (actions <= self.space.high)).all())

    def to_env(self, actions: Array) -> Array:
        if actions.shape == self._one_row:  # by Python's numbers, which are float64
            elements = zip(actions[0].tolist(), *self._listed, strict=True)
            row = [min(max(low + (unit + 1.0) * half, low), high) for unit, low, half, high in elements]
            return np.array([row], self.space.dtype)
        low, half_range, high = self._limits
        values = actions.reshape(len(actions), *self.space.shape).astype(np.float64)
        values += 1.0
        values *= half_range
        values += low
        return np.minimum(np.maximum(values, low, out=values), high, out=values).astype(self.space.dtype)

    def from_env(self, actions: Array) -> Array:
        unit = (actions.astype(np.float64) - self.low) / self.half_range - 1.0
        return unit.reshape(len(actions), -1).astype(np.float32)


class _UnboundedNumbers(_Coding):
    """A Box space with an infinite bound: its elements as one vector in its own units, clipped at finite bounds."""

    def __init__(self, space: spaces.Box) -> None:
        self.space = space
        self.spec = continuous(math.prod(space.shape), bounded=False)

    def outside(self, actions: Array, rounding: float) -> NDArray[np.bool_]:
        values = actions.reshape(len(actions), *self.space.shape)
        slack = rounding * np.maximum(np.abs(values), 1)
        beyond = (values < self.space.low - slack) | (values > self.space.high + slack)
        return np.asarray(beyond.reshape(len(actions), -1).any(1))

    def contains(self, actions: Array) -> bool:
        within = (actions >= self.space.low) & (actions <= self.space.high)
        return bool((within & np.isfinite(actions)).all())

    def to_env(self, actions: Array) -> Array:
        values = actions.reshape(len(actions), *self.space.shape).astype(self.space.dtype)
        return np.clip(values, self.space.low, self.space.high)

    def from_env(self, actions: Array) -> Array:
        return actions.reshape(len(actions), -1).astype(np.float32)


def _check_box(space: spaces.Box) -> None:
    if 0 in space.shape:
        raise UserError(f"action space {space} is empty")
    if not np.issubdtype(space.dtype, np.floating):
        raise UserError(f"action space {space} must hold floats, got {space.dtype}")
    if not (space.low < space.high).all():
        raise UserError(f"action space {space} has a bound with low >= high")


def _has_bounds(space: spaces.Box) -> bool:
    return bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())


def _bounding(space: spaces.Box) -> str:
    """Python code that wraps an environment to give its actions bounds, within the existing ones.

    Not RescaleAction, which rejects infinite bounds, nor ClipAction, which makes them infinite.
    """
    low = max(space.low[np.isfinite(space.low)], default=None)
    high = min(space.high[np.isfinite(space.high)], default=None)
    if low is None:
        low = -1.0 if high is None else high - 2
    if high is None or high <= low:
        high = low + 2
    bounds = f"gymnasium.spaces.Box({low:g}, {high:g}, env.action_space.shape)"
    return f"gymnasium.wrappers.TransformAction(env, lambda action: action, {bounds})"
