"""Specs: the shape, dtype and kind of every array that an environment and the library exchange.

Inside the library a continuous action lies in [-1, 1] and a discrete one is a number from 0. What depends on the kind
of an array is decided here, in `envs` and in `models`, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Kind = Literal["vector", "image", "continuous", "discrete"]
ACTION_DTYPES = {"continuous": "float32", "discrete": "int64"}
# As Gymnasium and people call them.
KIND_NAMES = {"vector": "vectors", "image": "images", "continuous": "Box", "discrete": "Discrete"}


@dataclass(frozen=True)
class ArraySpec:
    """One row of an array: an observation or an action, as the library stores it."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    choices: int = 0  # of a discrete one
    # How an image comes about, which matters to the replay and not to the learner.
    frames: int = field(default=1, compare=False)  # stacked along the first axis, oldest first

    def __str__(self) -> str:
        if self.kind == "discrete":
            return f"{self.choices} choices"
        if self.kind == "continuous":
            return f"actions of shape {self.shape}"
        return f"observations of shape {self.shape} ({self.dtype})"

    @property
    def size(self) -> int:
        """How many numbers a network reads or writes for it: the choices of a discrete one, else its elements."""
        return self.choices or math.prod(self.shape)

    @property
    def network_input(self) -> int | tuple[int, ...]:
        """A vector's length or an image's shape."""
        return self.shape if self.kind == "image" else self.size

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def space_name(self) -> str:
        """In the words of Gymnasium: `Discrete(4)`, `Box(6,)`."""
        return f"Discrete({self.choices})" if self.kind == "discrete" else f"Box({self.size},)"

    @property
    def stored_as_frames(self) -> bool:
        """Whether a replay keeps every frame once instead of whole stacks."""
        return self.kind == "image" and self.dtype == "uint8"

    @property
    def can_be_normalized(self) -> bool:
        return self.kind == "vector"

    @property
    def looks_channels_last(self) -> bool:
        """Whether an image is so much narrower than high, or a square of something, that its width must be channels."""
        if self.kind != "image":
            return False
        first, second, third = self.shape
        return third <= max(4, min(first, second) // 2) or first == second != third

    def sample(self, rng: np.random.Generator, rows: int) -> Array:
        """Uniformly random actions."""
        if self.kind == "discrete":
            return rng.integers(self.choices, size=rows)
        return rng.uniform(-1, 1, (rows, *self.shape)).astype(np.float32)

    def from_uniforms(self, uniforms: Any) -> Any:
        """Tensors of uniform numbers from 0 to 1 as uniformly random actions."""
        if self.kind == "discrete":  # just below 1 a float times 9 rounds to 9, hence the bound
            return (uniforms * self.choices).long().clamp(max=self.choices - 1)
        return 2 * uniforms - 1

    def exploration_noise(self, rows: int) -> tuple[str, tuple[int, ...]]:
        """Kind and shape of the random numbers behind `rows` exploring actions."""
        return ("uniform", (rows, 2)) if self.kind == "discrete" else ("normal", (rows, *self.shape))

    def perturbed(self, actions: Array, amount: float, rng: np.random.Generator) -> Array:
        """Noise of that standard deviation, or with that probability a random choice."""
        if self.kind == "discrete":
            return np.where(rng.random(len(actions)) < amount, self.sample(rng, len(actions)), actions)
        return np.clip(actions + amount * rng.standard_normal(actions.shape), -1, 1).astype(np.float32)

    @property
    def max_noise(self) -> float:
        """The largest `amount` that `perturbed` takes: a probability, or any standard deviation."""
        return 1.0 if self.kind == "discrete" else math.inf

    def contains(self, values: Any) -> bool:
        """Whether every choice is one of those there are; anything goes for the other kinds. Arrays or tensors."""
        return self.kind != "discrete" or bool(((values >= 0) & (values < self.choices)).all())


def vector(size: int, dtype: str = "float32") -> ArraySpec:
    return ArraySpec("vector", (size,), dtype)


def image(*shape: int, frames: int = 1) -> ArraySpec:
    """(channels, height, width) of bytes."""
    return ArraySpec("image", shape, "uint8", frames=frames)


def continuous(size: int) -> ArraySpec:
    return ArraySpec("continuous", (size,), ACTION_DTYPES["continuous"])


def discrete(choices: int) -> ArraySpec:
    return ArraySpec("discrete", (), ACTION_DTYPES["discrete"], choices)


def action_spec(kind: Kind, size: int) -> ArraySpec:
    return discrete(size) if kind == "discrete" else continuous(size)


@dataclass(frozen=True)
class EnvSpec:
    """What a learner and a replay must know of an environment."""

    observation: ArraySpec
    action: ArraySpec
    episode_limit: int | None = field(default=None, compare=False)  # steps until an episode is cut off, if known

    def __str__(self) -> str:
        return f"{self.observation} and {self.action}"


SpecTree: TypeAlias = "ArraySpec | Mapping[str, SpecTree]"


def leaves(tree: SpecTree, name: str) -> dict[str, ArraySpec]:
    """The arrays of a tree by name: `obs` for a single one, `obs.camera` and so on for a mapping."""
    if isinstance(tree, ArraySpec):
        return {name: tree}
    return {key: spec for part, inner in tree.items() for key, spec in leaves(inner, f"{name}.{part}").items()}
