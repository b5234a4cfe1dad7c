"""Conversion between the spaces of an environment and the library's arrays.

Inside the library a continuous action lies in [-1, 1] and a discrete one is an index from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.core.checks import UserError, shown
from rl_training.core.specs import ArraySpec, EnvSpec, continuous, discrete

MAX_SPACE = 2**24  # numbers in an observation or action


class ObservationCodec:
    """Converts observations of an environment to arrays of fixed shape and dtype, and back."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        self.one_hot = 0
        self.shape: tuple[int, ...]
        self.dtype: np.dtype[Any]
        if isinstance(space, spaces.Box):
            if space.dtype == np.uint8 and len(space.shape) == 3:
                self.shape, self.dtype = tuple(space.shape), np.dtype(np.uint8)
            elif np.issubdtype(space.dtype, np.number):
                self.shape, self.dtype = (int(np.prod(space.shape)),), np.dtype(np.float32)
            else:
                raise UserError(f"observation space {space} has dtype {space.dtype}; numbers are supported")
            if 0 in self.shape:
                raise UserError(f"observation space {space} is empty")
        elif isinstance(space, spaces.Discrete):
            self.one_hot = int(space.n)
            self.shape, self.dtype = (self.one_hot,), np.dtype(np.float32)
        else:
            raise UserError(
                f"observation space {type(space).__name__} is not supported; supported: Box (vectors and images), "
                "Discrete (one-hot). Wrap the environment, e.g. with gymnasium.wrappers.FlattenObservation"
            )

    @property
    def spec(self) -> ArraySpec:
        return ArraySpec("image" if self.is_image else "vector", self.shape, self.dtype.name)

    @property
    def is_image(self) -> bool:
        return len(self.shape) == 3

    def accepts_dtype(self, dtype: np.dtype[Any]) -> bool:
        """Whether arrays of this dtype can be stored as observations: images are bytes, vectors any numbers."""
        return not self.is_image or dtype == np.uint8

    def bounds(self, rounding: float) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """The bounds of vectors, widened by a relative rounding error; None for images and discrete observations."""
        space = self.space
        if not isinstance(space, spaces.Box) or self.is_image:
            return None
        low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
        with np.errstate(over="ignore"):
            return low - rounding * np.maximum(np.abs(low), 1), high + rounding * np.maximum(np.abs(high), 1)

    def read(self, obs: Any) -> tuple[NDArray[Any], bool]:
        """Encode one observation or a batch, as a caller passes it; returns the rows and whether it was one."""
        space = self.space
        try:
            array = np.asarray(obs)
        except ValueError as error:
            raise UserError(f"observation must be an array of shape {space.shape}, got a ragged list") from error
        if array.dtype == object or not np.issubdtype(array.dtype, np.number):
            raise UserError(f"observation must be an array of numbers of shape {space.shape}")
        single = array.shape == space.shape
        batch = array[None] if single else array
        if batch.shape[1:] != space.shape or len(batch) == 0:
            raise UserError(f"observation must be of shape {space.shape} or a batch of it, got {array.shape}")
        if not np.isfinite(batch).all():
            raise UserError("observation must be finite, got NaN or infinity")
        if self.is_image and not ((batch >= 0) & (batch <= 255) & (batch == np.floor(batch))).all():
            raise UserError("observation must be an image of whole numbers from 0 to 255 (uint8)")
        rows = np.zeros((len(batch), *self.shape), self.dtype)
        for row, one in zip(rows, batch, strict=True):
            if self.one_hot and not (one == int(one) and space.contains(int(one))):
                raise UserError(f"observation must be in {space}, got {one}")
            with np.errstate(over="ignore"):
                self.encode(one, row)
        if not np.isfinite(rows).all():
            raise UserError("observation must be finite in float32")
        return rows, single

    def same_but_for_bounds(self, before: Mapping[str, Any]) -> bool:
        """Whether a saved space differs at most in its bounds: a dataset may have none, an environment has."""
        now = space_to_dict(self.space)
        boxes = not self.is_image and before.get("kind") == now["kind"] == "box"
        return boxes and before.get("shape") == now["shape"]

    def encode(self, observation: Any, out: NDArray[Any]) -> None:
        """Write one observation into `out` (a row of a preallocated array)."""
        if self.one_hot:
            out[:] = 0
            out[int(observation) - int(self.space.start)] = 1  # type: ignore[attr-defined]
        else:
            out[...] = np.asarray(observation).reshape(self.shape)

    def encode_rows(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Encode many observations at once, as `encode` does row by row."""
        if self.one_hot:
            start = int(self.space.start)  # type: ignore[attr-defined]
            rows = np.zeros((len(observations), self.one_hot), self.dtype)
            rows[np.arange(len(rows)), observations.astype(np.int64) - start] = 1
            return rows
        return observations.reshape(len(observations), *self.shape).astype(self.dtype, copy=False)

    def decode_rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `encode_rows`, up to the precision of the library's dtype."""
        if self.one_hot:
            return np.asarray(rows.argmax(-1) + int(self.space.start))  # type: ignore[attr-defined]
        return rows.reshape(len(rows), *(self.space.shape or ()))


class ActionCodec:
    """Converts actions from the library's units to those of the environment, and back."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.space = space
        if isinstance(space, spaces.Discrete):
            self.discrete, self.dim = True, int(space.n)
            self.start = int(space.start)
        elif isinstance(space, spaces.Box):
            self.discrete = False
            if len(space.shape) != 1 or space.shape[0] < 1:
                raise UserError(f"action space {space} must be a Box of shape (n,), got shape {space.shape}")
            if not np.issubdtype(space.dtype, np.floating):
                raise UserError(f"action space {space} must hold floats, got {space.dtype}")
            if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
                raise UserError(f"action space {space} is unbounded; give it bounds, e.g. {_bounding(space)}")
            if not (space.low < space.high).all():
                raise UserError(f"action space {space} has a bound with low >= high")
            self.dim = int(space.shape[0])
            self.low = space.low.astype(np.float64)
            self.half_range = (space.high.astype(np.float64) - self.low) / 2
        else:
            raise UserError(
                f"action space {type(space).__name__} is not supported; supported: Discrete, Box of shape (n,)"
            )

    @property
    def spec(self) -> ArraySpec:
        return discrete(self.dim) if self.discrete else continuous(self.dim)

    def one(self, actions: NDArray[Any]) -> Any:
        """The first action of a batch in the environment's units, as `step` takes it: an int or an array."""
        return int(actions[0]) if self.discrete else actions[0]

    @property
    def can_be_clipped(self) -> bool:
        return not self.discrete

    def accepts(self, actions: NDArray[Any]) -> bool:
        """Whether rows of a dataset have the shape and type of this space's actions."""
        if self.discrete:
            return actions.dtype.kind != "f"
        return actions.ndim == 2 and actions.shape[1] == self.dim

    def outside(self, actions: NDArray[Any], rounding: float) -> NDArray[np.bool_]:
        """Which rows, in the library's units, are outside the space by more than a rounding error."""
        if self.discrete:
            return np.asarray((actions < 0) | (actions >= self.dim))
        return np.asarray((np.abs(actions) > 1 + rounding).any(1))

    def contains(self, actions: NDArray[Any]) -> bool:
        """Whether all actions, in the environment's units, are in its space."""
        space: Any = self.space
        if self.discrete:
            return bool(((actions >= self.start) & (actions < self.start + self.dim)).all())
        return bool(((actions >= space.low) & (actions <= space.high)).all())

    def to_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """A batch of the library's actions in the environment's units and dtype."""
        if self.discrete:
            return actions + self.start if self.start else actions
        scaled = self.low + (actions.astype(np.float64) + 1.0) * self.half_range
        return np.clip(scaled, self.space.low, self.space.high).astype(self.space.dtype)  # type: ignore[attr-defined]

    def from_env(self, actions: NDArray[Any]) -> NDArray[Any]:
        """The inverse of `to_env`."""
        if self.discrete:
            return actions.astype(np.int64) - self.start
        return ((actions.astype(np.float64) - self.low) / self.half_range - 1.0).astype(np.float32)


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


def env_spec(
    observation: ObservationCodec, action: ActionCodec, frame_stack: int = 1, episode_limit: int | None = None
) -> EnvSpec:
    """The spec of an environment with these spaces."""
    return EnvSpec(replace(observation.spec, frames=frame_stack), action.spec, episode_limit)


def space_to_dict(space: spaces.Space[Any]) -> dict[str, Any]:
    """A supported space as JSON, for files that are read without the environment."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    assert isinstance(space, spaces.Box)
    bounds = {name: np.asarray(getattr(space, name), np.float64) for name in ("low", "high")}
    # repr keeps every bit and infinity; a bound that is the same everywhere is written once
    texts = {k: [repr(float(b)) for b in (v.flat[:1] if (v == v.flat[0]).all() else v.flat)] for k, v in bounds.items()}
    return {"kind": "box", "shape": list(space.shape), "dtype": np.dtype(space.dtype).name, **texts}


def described_shape(values: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of one row of a space, from its description by `space_to_dict`."""
    return () if values["kind"] == "discrete" else tuple(values["shape"])


def space_from_dict(values: dict[str, Any]) -> spaces.Space[Any]:
    """The inverse of `space_to_dict`. The description is untrusted: the size of its bounds is checked first."""
    if values["kind"] == "discrete":
        if not 0 < int(values["n"]) <= MAX_SPACE:
            raise ValueError(f"a space of {shown(values['n'])} choices is not supported")
        return spaces.Discrete(int(values["n"]), start=int(values["start"]))
    size = math.prod(values["shape"])
    if not 0 < size <= MAX_SPACE or any(len(values[name]) not in (1, size) for name in ("low", "high")):
        raise ValueError(f"a space of shape {shown(values['shape'])} is not supported")
    shape = tuple(int(length) for length in values["shape"])
    name = values["dtype"]
    dtype = np.dtype(name if isinstance(name, str) and name.isalnum() else object)  # numpy would parse anything else
    if dtype.kind not in "fiu":
        raise ValueError(f"dtype must be a number type, got {shown(name)}")
    bounds = []
    for name in ("low", "high"):
        numbers = np.array([_bound(float(text), dtype) for text in values[name]], dtype)
        bounds.append(np.full(shape, numbers[0]) if len(numbers) == 1 else numbers.reshape(shape))
    return spaces.Box(bounds[0], bounds[1], shape, dtype.type)


def _bound(number: float, dtype: np.dtype[Any]) -> float | int:
    """A bound clamped to the range of its type: a float cannot represent the largest integers, nor they infinity."""
    if dtype.kind == "f":
        return number
    limits = np.iinfo(dtype)
    return int(number) if limits.min < number < limits.max else int(limits.max if number > 0 else limits.min)
