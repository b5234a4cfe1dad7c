"""Specs: the shape, dtype and kind of every array that an environment and the library exchange.

Inside the library a continuous action lies in [-1, 1] and a discrete one is an index from 0. Only this module,
`envs` and `models` branch on the kind of an array.
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
# Names for messages.
KIND_NAMES = {"vector": "vectors", "image": "images", "continuous": "Box", "discrete": "Discrete"}


@dataclass(frozen=True)
class ArraySpec:
    """The spec of one row of an array: an observation or an action, as the library stores it."""

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    choices: int = 0  # of a discrete array
    # Matters to the replay, not to the learner.
    frames: int = field(default=1, compare=False)  # of an image: stacked along the first axis, oldest first

    def __str__(self) -> str:
        if self.kind == "discrete":
            return f"{self.choices} choices"
        if self.kind == "continuous":
            return f"actions of shape {self.shape}"
        return f"observations of shape {self.shape} ({self.dtype})"

    @property
    def size(self) -> int:
        """The size of a network's input or output: the choices of a discrete array, else its elements."""
        return self.choices or math.prod(self.shape)

    @property
    def network_input(self) -> int | tuple[int, ...]:
        """The length of a vector or the shape of an image."""
        return self.shape if self.kind == "image" else self.size

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def space_name(self) -> str:
        """The name of the Gymnasium space: `Discrete(4)`, `Box(6,)`."""
        return f"Discrete({self.choices})" if self.kind == "discrete" else f"Box({self.size},)"

    @property
    def stored_as_frames(self) -> bool:
        """Whether a replay stores every frame once instead of whole stacks."""
        return self.kind == "image" and self.dtype == "uint8"

    @property
    def can_be_normalized(self) -> bool:
        return self.kind == "vector"

    @property
    def looks_channels_last(self) -> bool:
        """Whether the last axis of an image is probably its channels: it is short, or follows a square."""
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
        """Uniformly random actions from a tensor of uniform numbers in [0, 1)."""
        if self.kind == "discrete":  # just below 1 a float times 9 rounds to 9, hence the bound
            return (uniforms * self.choices).long().clamp(max=self.choices - 1)
        return 2 * uniforms - 1

    def exploration_noise(self, rows: int) -> tuple[str, tuple[int, ...]]:
        """Distribution and shape of the random numbers that `rows` exploring actions need."""
        return ("uniform", (rows, 2)) if self.kind == "discrete" else ("normal", (rows, *self.shape))

    def perturbed(self, actions: Array, amount: float, rng: np.random.Generator) -> Array:
        """Actions with noise of standard deviation `amount`, or with probability `amount` a random choice."""
        if self.kind == "discrete":
            return np.where(rng.random(len(actions)) < amount, self.sample(rng, len(actions)), actions)
        return np.clip(actions + amount * rng.standard_normal(actions.shape), -1, 1).astype(np.float32)

    @property
    def max_noise(self) -> float:
        """The largest `amount` for `perturbed`: a probability, or any standard deviation."""
        return 1.0 if self.kind == "discrete" else math.inf

    def contains(self, values: Any) -> bool:
        """Whether every discrete value is a valid choice; True for the other kinds. Arrays or tensors."""
        return self.kind != "discrete" or bool(((values >= 0) & (values < self.choices)).all())


def vector(size: int, dtype: str = "float32") -> ArraySpec:
    """A vector observation."""
    return ArraySpec("vector", (size,), dtype)


def image(*shape: int, frames: int = 1) -> ArraySpec:
    """An image observation: (channels, height, width) of bytes."""
    return ArraySpec("image", shape, "uint8", frames=frames)


def continuous(size: int) -> ArraySpec:
    """A continuous action."""
    return ArraySpec("continuous", (size,), ACTION_DTYPES["continuous"])


def discrete(choices: int) -> ArraySpec:
    """A discrete action."""
    return ArraySpec("discrete", (), ACTION_DTYPES["discrete"], choices)


def action_spec(kind: Kind, size: int) -> ArraySpec:
    """A discrete action with `size` choices or a continuous one with `size` elements."""
    return discrete(size) if kind == "discrete" else continuous(size)


@dataclass(frozen=True)
class EnvSpec:
    """The specs of an environment's observation and action, and its time limit."""

    observation: ArraySpec
    action: ArraySpec
    episode_limit: int | None = field(default=None, compare=False)  # steps until an episode is cut off, if known

    def __str__(self) -> str:
        return f"{self.observation} and {self.action}"


SpecTree: TypeAlias = "ArraySpec | Mapping[str, SpecTree]"


def leaves(tree: SpecTree, name: str) -> dict[str, ArraySpec]:
    """The specs of a tree by name: `obs` for a single array, `obs.camera` and so on for a mapping."""
    if isinstance(tree, ArraySpec):
        return {name: tree}
    return {key: spec for part, inner in tree.items() for key, spec in leaves(inner, f"{name}.{part}").items()}
