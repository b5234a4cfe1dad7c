"""Conversion of observations: any supported space to one array of fixed shape and dtype, and back.

The leaves of a Dict or Tuple are packed: numbers into one float32 vector, images behind its bytes (see `ArraySpec`).
An action mask, if there is one, is behind everything else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.core.checks import UserError
from rl_training.core.specs import IMAGES, VECTOR, ArraySpec, Entry, image, mixed, vector
from rl_training.envs.spaces.files import space_to_dict
from rl_training.envs.spaces.leaves import Leaf, Numbers, OneHot, Picture
from rl_training.envs.spaces.masks import read_mask, read_masks
from rl_training.envs.spaces.trees import branches, check_branch, has_branch, tree

Array = NDArray[Any]
SUPPORTED = "Box (numbers or images), Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of them"


class ObservationCodec:
    """Converts observations of an environment to arrays of fixed shape and dtype, and back.

    `masked_action`: the action whose mask is part of every row; None: there is no mask.
    """

    def __init__(self, space: spaces.Space[Any], masked_action: ArraySpec | None = None) -> None:
        self.space = space
        self.leaves = list(_leaves(space, (), ""))
        names = [leaf.name for leaf in self.leaves]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"two entries of the observation have the name {twice!r}; keys must not contain dots")
        numbers = [leaf for leaf in self.leaves if not leaf.is_image]
        start = 0
        for leaf in numbers:
            leaf.place(start)
            start += leaf.size
        self.plain_spec = _spec_of(space, numbers, [leaf for leaf in self.leaves if isinstance(leaf, Picture)])
        self.masked_action = masked_action
        self.spec = self.plain_spec.with_mask(masked_action.mask_size if masked_action is not None else 0)
        self.mask = self.spec.mask  # elements of the action mask
        self.shape, self.dtype = self.spec.shape, np.dtype(self.spec.dtype)
        self.is_tree = isinstance(space, (spaces.Dict, spaces.Tuple))
        self._branches = list(branches(space))
        self._vector = slice(0, 4 * start)  # bytes of the vector in a mixed observation
        offset = self._vector.stop
        for leaf in self.leaves:
            if isinstance(leaf, Picture):
                leaf.place(offset if self.spec.parts else 0)
                offset += leaf.size
        self._mask = slice(offset, offset + self.mask)
        # Its array is the whole row.
        alone = not self.is_tree or self.spec.kind == "image"
        self._only = self.leaves[0] if alone and not self.mask else None

    @property
    def is_image(self) -> bool:
        return self.spec.numbers is None

    @property
    def one_hot(self) -> bool:
        """Whether an observation is a choice of one Discrete space."""
        return isinstance(self.space, spaces.Discrete)

    def accepts_dtype(self, dtype: np.dtype[Any]) -> bool:
        """Whether arrays of this dtype can be stored as observations: images are bytes, vectors any numbers."""
        return not self.is_image or dtype == np.uint8

    def bounds(self, rounding: float) -> tuple[Array, Array] | None:
        """The bounds of vectors, widened by a relative rounding error; None for images and other spaces."""
        space = self.space
        if not isinstance(space, spaces.Box) or self.is_image:
            return None
        low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
        with np.errstate(over="ignore"):
            return low - rounding * np.maximum(np.abs(low), 1), high + rounding * np.maximum(np.abs(high), 1)

    def same_but_for_bounds(self, before: Mapping[str, Any]) -> bool:
        """Whether a saved space differs at most in its bounds: a dataset may have none, an environment has."""
        now = space_to_dict(self.space)
        boxes = not self.is_image and before.get("kind") == now["kind"] == "box"
        return boxes and before.get("shape") == now["shape"]

    # --- the parts of encoded rows ---------------------------------------------------------------------------------
    def numbers(self, rows: Array) -> Array | None:
        """The vectors in encoded rows, as a view; None if there are only images."""
        if self.is_image:
            return None
        return rows[..., self._vector].view(np.float32) if self.spec.parts else rows

    def nonfinite_entry(self, row: Array) -> str:
        """The name of the first entry of an encoded row with NaN or infinity, for a message; "" if it has no name."""
        numbers = self.numbers(row)
        assert numbers is not None
        column = int(np.flatnonzero(~np.isfinite(numbers))[0])
        return next((f" in {entry.name!r}" for entry in self._entries() if entry.start <= column < entry.stop), "")

    def _entries(self) -> tuple[Entry, ...]:
        return self.spec.numbers.entries if self.spec.numbers is not None else ()

    def masks(self, rows: Array) -> Array:
        """The action masks in encoded rows."""
        return rows[..., self._mask]

    def without_mask(self, rows: Array) -> Array:
        """Encoded rows without their action masks."""
        if not self.mask:
            return rows
        if self.plain_spec.kind == "vector":
            return rows[..., self._vector].view(np.float32)
        plain = np.zeros((*rows.shape[:-1], math.prod(self.plain_spec.shape)), np.uint8)
        plain[..., : self._mask.start] = rows[..., : self._mask.start]
        return plain.reshape(*rows.shape[:-1], *self.plain_spec.shape)

    # --- observations in files -------------------------------------------------------------------------------------
    @property
    def file_shape(self) -> tuple[int, ...]:
        """The shape of one observation in a dataset: the space's own; of a Dict or Tuple, that of the encoded row."""
        return self.plain_spec.shape if self.is_tree else tuple(self.space.shape or ())

    @property
    def keeps_precision(self) -> bool:
        """Whether a recording can hold observations in the dtype of their space."""
        return isinstance(self.space, spaces.Box) and not self.mask

    def to_file(self, rows: Array) -> Array:
        """Encoded rows as a dataset holds them: without action masks."""
        return self.without_mask(rows) if self.is_tree else np.asarray(self.decode_rows(rows))

    def from_file(self, observations: Array) -> Array:
        """The inverse of `to_file`, in the library's dtype."""
        return observations if self.is_tree else self.encode_rows(observations)

    # --- encoding --------------------------------------------------------------------------------------------------
    def encode(self, observation: Any, out: Array, mask: Array | None = None) -> None:
        """Write one observation and its action mask into `out` (a row of a preallocated array of zeros)."""
        self.check_form(observation)
        if self._only is not None:
            self._only.encode(self._only.value_in(observation), out)
            return
        if self.mask:
            out[self._mask] = 1 if mask is None else mask
        numbers = out[self._vector].view(np.float32) if self.spec.parts else out
        for leaf in self.leaves:
            leaf.encode_part(leaf.value_in(observation), out if leaf.is_image else numbers)

    def check_form(self, observation: Any) -> None:
        """Reject an observation whose Dicts have other keys than the space's, or whose Tuples other lengths."""
        for branch in self._branches:
            check_branch(branch, observation)

    def encode_rows(self, observations: Any) -> Array:
        """Encode many observations at once, as `encode` does row by row: arrays, or mappings of them, by leaf."""
        self.check_form(observations)
        if self._only is not None:
            return self._only.encode_rows(np.asarray(self._only.value_in(observations)))
        columns = [leaf.encode_rows(np.asarray(leaf.value_in(observations))) for leaf in self.leaves]
        rows = np.zeros((len(columns[0]), *self.shape), self.dtype)
        if self.mask:
            rows[:, self._mask] = 1
        numbers = self.numbers(rows)
        for leaf, values in zip(self.leaves, columns, strict=True):
            leaf.put(values, rows if leaf.is_image else numbers)
        return rows

    def pack(self, observations: Any) -> Array:
        """`encode_rows` of observations of a Dict or Tuple space in a file or in memory, which are checked first."""
        try:
            self.check_form(observations)
            values = {leaf: np.asarray(leaf.value_in(observations)) for leaf in self.leaves}
        except (TypeError, LookupError, ValueError) as error:
            raise UserError(f"observations must be in {type(self.space).__name__}: {error}") from error
        for leaf, array in values.items():
            if array.dtype.kind not in "biuf" or array.ndim == 0 or array.shape[1:] != (leaf.space.shape or ()):
                found = f"{array.dtype} {array.shape}"
                raise UserError(f"{leaf.label} must be numbers of shape (rows, *{leaf.space.shape}), got {found}")
            leaf.check_batch(array)
        lengths = {leaf.name: len(array) for leaf, array in values.items()}
        if len(set(lengths.values())) > 1:
            raise UserError(f"all entries of an observation must have the same length, got {lengths}")
        with np.errstate(over="ignore"):
            return self.encode_rows(observations)

    def decode_rows(self, rows: Array) -> Any:
        """The inverse of `encode_rows`, up to the precision of the library's dtype."""
        if self._only is not None:
            return tree(self.space, (), {self._only.path: self._only.decode_rows(rows)})
        numbers = self.numbers(rows)
        found = {leaf.path: leaf.decode_rows(leaf.get(rows if leaf.is_image else numbers)) for leaf in self.leaves}
        return tree(self.space, (), found)

    def read(self, obs: Any, mask: Any = None) -> tuple[Array, bool]:
        """Encode one observation or a batch, as a caller passes it; returns the rows and whether it was one.

        `mask`: its action mask, or a batch of them; None: every action is allowed.
        """
        if mask is None:
            if isinstance(self._only, Numbers) and (found := self._only.read_floats(obs)) is not None:
                return found
            row = self._read_one(obs)
            if row is not None:
                return row, True
        try:
            if self.is_tree:
                self.check_form(obs)
            read = [leaf.read(leaf.value_in(obs)) for leaf in self.leaves]
        except UserError:  # of a leaf, which names itself
            raise
        except (TypeError, IndexError, KeyError, ValueError) as error:
            raise UserError(
                f"observation must be in {type(self.space).__name__} of the environment: {error}"
            ) from error
        counts = {(len(batch), single) for batch, single in read}
        if len(counts) > 1:
            raise UserError("observation must be one for all its entries, or a batch of the same length for all")
        rows = np.zeros((len(read[0][0]), *self.shape), self.dtype)
        if self.mask:
            rows[:, self._mask] = 1 if mask is None else self._read_mask(mask, len(rows), read[0][1])
        numbers = self.numbers(rows)
        with np.errstate(over="ignore"):
            for leaf, (batch, _) in zip(self.leaves, read, strict=True):
                leaf.put(leaf.encode_rows(batch), rows if leaf.is_image else numbers)
        if numbers is not None and not np.isfinite(numbers).all():
            raise UserError("observation must be finite in float32")
        return rows, read[0][1]

    def _read_one(self, obs: Any) -> Array | None:
        """The row of one valid observation of arrays and numbers; None: anything else, such as an invalid one."""
        rows = np.zeros((1, *self.shape), self.dtype)
        row = rows[0]
        numbers = row[self._vector].view(np.float32) if self.spec.parts else row
        with np.errstate(over="ignore"):
            for path, inside in self._branches:
                if path or type(obs) not in (dict, tuple, list) or not has_branch(inside, obs):
                    return None
            for leaf in self.leaves:
                if not leaf.read_one(leaf.value_in(obs), row if leaf.is_image else numbers):
                    return None
        if self.mask:
            row[self._mask] = 1
        return rows if self.is_image or np.isfinite(numbers).all() else None

    def _read_mask(self, given: Any, rows: int, single: bool) -> Array:
        assert self.masked_action is not None
        return read_mask(given, self.masked_action) if single else read_masks(given, self.masked_action, rows)


def _leaves(space: spaces.Space[Any], path: tuple[Any, ...], name: str) -> Iterator[Leaf]:
    """The leaves of a space in a fixed order."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, inner in items:
            yield from _leaves(inner, (*path, key), f"{name}.{key}" if name else str(key))
    elif isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        yield OneHot(space, path, name)
    elif isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) == 3:
        yield Picture(space, path, name)
    elif isinstance(space, (spaces.Box, spaces.MultiBinary)):
        yield Numbers(space, path, name)
    else:
        where = f" of {name!r}" if name else ""
        raise UserError(
            f"observation space {type(space).__name__}{where} is not supported; supported: {SUPPORTED}. "
            "Wrap the environment, e.g. with gymnasium.wrappers.TransformObservation"
        )


def _spec_of(space: spaces.Space[Any], numbers: list[Leaf], pictures: list[Picture]) -> ArraySpec:
    named = isinstance(space, (spaces.Dict, spaces.Tuple))
    if not numbers and not pictures:
        raise UserError(f"observation space {space} is empty")
    entries = tuple(Entry(leaf.name, leaf.shape, leaf.start) for leaf in numbers) if named else ()
    packed = replace(vector(sum(leaf.size for leaf in numbers)), entries=entries)
    if not pictures:
        return packed
    if not numbers and len(pictures) == 1:
        only = pictures[0]
        return replace(image(*only.shape), entries=(Entry(only.name, only.shape, 0),) if named else ())
    parts = {VECTOR: packed} if numbers else {}
    return mixed({**parts, **{f"{IMAGES}{leaf.name}": image(*leaf.shape) for leaf in pictures}})
