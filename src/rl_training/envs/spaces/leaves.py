"""The leaves of an observation space: numbers, choices (one-hot) and images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.core.checks import UserError

Array = NDArray[Any]
MAX_PYTHON_NUMBERS = 64  # in one vector, for which Python takes less time than numpy
MAX_FLOAT32 = float(np.finfo(np.float32).max)


class Leaf:
    """One array of an observation, and its place in the encoded row."""

    shape: tuple[int, ...]  # as networks receive it
    is_image = False

    def __init__(self, space: Any, path: tuple[Any, ...], name: str) -> None:
        self.space, self.path, self.name = space, path, name
        self.label = f"observation entry {name!r}" if name else "observation"
        self.start = 0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def place(self, start: int) -> None:
        """Set the first element of the leaf in the encoded row."""
        self.start, self.slice = start, slice(start, start + self.size)

    def value_in(self, observation: Any) -> Any:
        for key in self.path:
            observation = observation[key]
        return observation

    def encode(self, value: Any, out: Array) -> None:
        """Write a value into `out`, of this leaf's shape."""
        raise NotImplementedError

    def encode_part(self, value: Any, out: Array) -> None:
        """Write a value into its place in `out`, which all leaves of a Dict or Tuple share."""
        try:
            self.encode(value, out[self.slice].reshape(self.shape))  # a view: slices are contiguous
        except ValueError as error:
            raise ValueError(f"{self.label}: {error}") from error

    def encode_rows(self, values: Array) -> Array:
        """Encode values (rows, *space.shape) as (rows, *shape)."""
        raise NotImplementedError

    def decode_rows(self, rows: Array) -> Array:
        """The inverse of `encode_rows`."""
        raise NotImplementedError

    def put(self, values: Array, rows: Array | None) -> None:
        """Write encoded values into their place in encoded rows."""
        assert rows is not None
        if rows.ndim == values.ndim and rows.shape == values.shape:
            rows[...] = values
        else:
            rows[:, self.slice] = values.reshape(len(values), self.size)

    def get(self, rows: Array | None) -> Array:
        """The encoded values of this leaf in encoded rows."""
        assert rows is not None
        return rows[:, self.slice].reshape(len(rows), *self.shape)

    def read(self, value: Any) -> tuple[Array, bool]:
        """A value or a batch of them, as a caller passes it, checked; and whether it was one."""
        shape = self.space.shape or ()
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise UserError(f"{self.label} must be an array of shape {shape}, got a ragged list") from error
        if array.dtype == object or not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
            raise UserError(f"{self.label} must be an array of numbers of shape {shape}")
        single = array.shape == shape
        batch = array[None] if single else array
        if batch.shape[1:] != shape or len(batch) == 0:
            raise UserError(f"{self.label} must be of shape {shape} or a batch of it, got {array.shape}")
        if not np.isfinite(batch).all():
            raise UserError(f"{self.label} must be finite, got NaN or infinity")
        self.check_batch(batch)
        return batch, single

    def read_one(self, value: Any, out: Array) -> bool:
        """Write one value into its place in a row, if that needs no further checks than finiteness; else False."""
        return False

    def check_batch(self, batch: Array) -> None:
        """Reject values outside the space that cannot be encoded."""


class Numbers(Leaf):
    """Numbers of a Box or MultiBinary."""

    def __init__(self, space: Any, path: tuple[Any, ...], name: str) -> None:
        super().__init__(space, path, name)
        if not np.issubdtype(space.dtype, np.number):
            raise UserError(f"observation space {space} has dtype {space.dtype}; numbers are supported")
        # A vector by itself is flat; an entry of a Dict or Tuple keeps its shape for a user's own network.
        self.shape = tuple(space.shape) if path else (int(np.prod(space.shape)),)
        if 0 in self.shape:
            raise UserError(f"observation space {space} is empty")
        self._space_shape = tuple(space.shape)

    def encode(self, value: Any, out: Array) -> None:
        out[...] = np.asarray(value).reshape(self.shape)

    def read_one(self, value: Any, out: Array) -> bool:
        if type(value) is not np.ndarray or value.shape != self._space_shape or value.dtype.kind not in "fiub":
            return False
        out[self.slice] = value if value.ndim == 1 else value.reshape(-1)
        return True

    def read_floats(self, value: Any) -> tuple[Array, bool] | None:
        """The rows of one valid vector of floats or of a batch, and whether it was one; None: anything else."""
        if type(value) is not np.ndarray or value.dtype.char not in "fd" or value.shape[-1:] != self._space_shape:
            return None
        if value.ndim == 0:  # () is the end of its shape, too, but it is no batch
            return None
        single = value.ndim == 1
        if single and len(value) <= MAX_PYTHON_NUMBERS and sum(map(abs, value.tolist())) <= MAX_FLOAT32:
            return value.astype(np.float32).reshape(1, -1), True
        with np.errstate(over="ignore"):
            rows = value.astype(np.float32)
        if rows.ndim > 2 or not rows.size or not np.isfinite(rows).all():
            return None
        return rows.reshape(-1, *self.shape), single

    def encode_rows(self, values: Array) -> Array:
        return values.reshape(len(values), *self.shape).astype(np.float32, copy=False)

    def decode_rows(self, rows: Array) -> Array:
        return rows.reshape(len(rows), *self.space.shape)


class OneHot(Leaf):
    """The choices of a Discrete or MultiDiscrete: a one for each choice, else zeros."""

    def __init__(self, space: Any, path: tuple[Any, ...], name: str) -> None:
        super().__init__(space, path, name)
        if isinstance(space, spaces.Discrete):
            choices, first = np.array([int(space.n)]), np.array([int(space.start)])
        else:
            choices, first = space.nvec.astype(np.int64).reshape(-1), np.asarray(space.start, np.int64).reshape(-1)
        self.choices, self.first, self._start = choices, first, int(first[0])
        self.offsets = np.concatenate([[0], np.cumsum(choices)[:-1]]).astype(np.int64)
        self.shape = (int(choices.sum()),)

    def encode(self, value: Any, out: Array) -> None:
        if not self.space.shape:
            out[:] = 0
            out[self._position(int(value))] = 1
            return
        chosen = np.asarray(value, np.int64).reshape(-1) - self.first
        if chosen.size != self.choices.size or (chosen < 0).any() or (chosen >= self.choices).any():
            raise ValueError(f"{value!r} is not in {self.space}")
        out[:] = 0
        out[self.offsets + chosen] = 1

    def read_one(self, value: Any, out: Array) -> bool:
        if self.space.shape or not isinstance(value, (int, np.integer)):
            return False
        position = int(value) - self._start
        if not 0 <= position < self.shape[0]:
            return False
        out[self.start + position] = 1
        return True

    def _position(self, value: int) -> int:
        """The position of a choice of a Discrete: faster than arrays of one element."""
        position = value - self._start
        if not 0 <= position < self.shape[0]:
            raise ValueError(f"{value} is not in {self.space}")
        return position

    def encode_rows(self, values: Array) -> Array:
        chosen = values.astype(np.int64).reshape(len(values), -1) - self.first
        rows = np.zeros((len(values), *self.shape), np.float32)
        rows[np.arange(len(rows))[:, None], self.offsets + chosen] = 1
        return rows

    def decode_rows(self, rows: Array) -> Array:
        parts = np.split(rows, self.offsets[1:], axis=-1)
        chosen = np.stack([part.argmax(-1) for part in parts], -1) + self.first
        return np.asarray(chosen.reshape(len(rows), *(self.space.shape or ())))

    def check_batch(self, batch: Array) -> None:
        chosen = batch.reshape(len(batch), -1) - self.first
        wrong = ((chosen != np.floor(chosen)) | (chosen < 0) | (chosen >= self.choices)).any(-1)
        if wrong.any():
            raise UserError(f"{self.label} must be in {self.space}, got {batch[int(np.argmax(wrong))]}")


class Picture(Leaf):
    """An image of bytes."""

    is_image = True

    def __init__(self, space: Any, path: tuple[Any, ...], name: str) -> None:
        super().__init__(space, path, name)
        self.shape = tuple(space.shape)
        if 0 in self.shape:
            raise UserError(f"observation space {space} is empty")

    def encode(self, value: Any, out: Array) -> None:
        out[...] = np.asarray(value).reshape(self.shape)

    def read_one(self, value: Any, out: Array) -> bool:
        if type(value) is not np.ndarray or value.shape != self.shape or value.dtype != np.uint8:
            return False
        if out.shape == self.shape:
            out[...] = value
        else:
            out[self.slice] = value.reshape(-1)
        return True

    def encode_rows(self, values: Array) -> Array:
        return values.reshape(len(values), *self.shape).astype(np.uint8, copy=False)

    def decode_rows(self, rows: Array) -> Array:
        return rows.reshape(len(rows), *self.shape)

    def check_batch(self, batch: Array) -> None:
        if not ((batch >= 0) & (batch <= 255) & (batch == np.floor(batch))).all():
            raise UserError(f"{self.label} must be an image of whole numbers from 0 to 255 (uint8)")
