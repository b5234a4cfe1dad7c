"""Specs: the shape, dtype and kind of every array that an environment and the library exchange.

Inside the library a continuous action lies in [-1, 1], unless its space has no bounds, and a discrete one is an index
from 0. Only this module, `envs` and `models` branch on the kind of an array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError

Array: TypeAlias = NDArray[Any]
Kind = Literal["vector", "image", "mixed", "continuous", "discrete", "multi_discrete"]
ACTION_DTYPES = {"continuous": "float32", "discrete": "int64", "multi_discrete": "int64"}
# Names for messages.
KIND_NAMES = {
    "vector": "vectors",
    "image": "images",
    "mixed": "images with vectors",
    "continuous": "Box",
    "discrete": "Discrete",
    "multi_discrete": "MultiDiscrete",
}
MAX_JOINT_ACTIONS = 512  # of a MultiDiscrete or MultiBinary space, up to which they are one discrete action
VECTOR, IMAGES = "vector", "images."  # the name of all numbers in a mixed observation, the prefix of its images
MASK = "mask"  # the name of the action mask in a mixed observation: a byte for each choice, 1 where it is allowed


@dataclass(frozen=True)
class Entry:
    """One array of a Dict or Tuple observation: elements of a vector from `start`."""

    name: str  # its keys, joined by dots: `robot.arm`; the positions in a Tuple
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)


@dataclass(frozen=True)
class ArraySpec:
    """The spec of one row of an array: an observation or an action, as the library stores it.

    An observation is one array, whatever its space: the numbers of a Dict or Tuple are packed into one vector, and a
    mixed observation (images with numbers, or several images) into one row of bytes, the bytes of that vector first.
    An observation with an action mask is a mixed one too; the mask is its last part.
    """

    kind: Kind
    shape: tuple[int, ...]
    dtype: str
    choices: int = 0  # of a discrete array
    # Of each element of a multi-discrete array, also where its joint actions are one discrete array.
    multi_choices: tuple[int, ...] = ()
    entries: tuple[Entry, ...] = ()  # of a vector packed from a Dict or Tuple
    parts: tuple[tuple[str, ArraySpec], ...] = ()  # of a mixed observation: the vector if any, images, the mask if any
    bounded: bool = True  # false: a continuous action in the environment's own units, not in [-1, 1]
    # Matters to the replay, not to the learner.
    frames: int = field(default=1, compare=False)  # of an image: stacked along the first axis, oldest first

    def __str__(self) -> str:
        if self.kind == "discrete":
            return f"{self.multi_choices or self.choices} choices"
        if self.kind == "multi_discrete":
            return f"{self.multi_choices} choices"
        if self.kind == "continuous":
            return f"{'' if self.bounded else 'unbounded '}actions of shape {self.shape}"
        if self.mask:
            return f"{self.without_mask()} with an action mask of {self.mask}"
        if self.parts:
            return f"observations of {', '.join(f'{name} {part.shape}' for name, part in self.parts)}"
        names = f", {', '.join(entry.name for entry in self.entries)}" if self.entries else ""
        return f"observations of shape {self.shape} ({self.dtype}{names})"

    @property
    def size(self) -> int:
        """The size of a network's input or output: the choices of a discrete array, else its elements."""
        return self.choices or sum(self.multi_choices) or math.prod(self.shape)

    @property
    def arrays(self) -> dict[str, ArraySpec]:
        """The parts of a mixed observation by name."""
        return dict(self.parts)

    @property
    def mask(self) -> int:
        """The number of elements of the action mask in an observation; 0: it has none."""
        return self.arrays[MASK].size if MASK in self.arrays else 0

    @property
    def mask_size(self) -> int:
        """The number of elements of a mask of this action: the choices of all its elements; 0: it has no choices."""
        return sum(self.multi_choices) or self.choices

    def with_mask(self, size: int) -> ArraySpec:
        """An observation with an action mask of `size` elements behind it; 0: the observation as it is."""
        if not size:
            return self
        name = self.entries[0].name if self.entries else ""
        whole = {VECTOR if self.kind == "vector" else f"{IMAGES}{name}": self}
        return mixed({**(self.arrays or whole), MASK: ArraySpec("vector", (size,), "uint8")})

    def without_mask(self) -> ArraySpec:
        """The observation as networks see it: a plain vector or image where there is nothing else beside the mask."""
        if not self.mask:
            return self
        rest = {name: part for name, part in self.parts if name != MASK}
        return next(iter(rest.values())) if len(rest) == 1 else mixed(rest)

    def with_frames(self, frames: int) -> ArraySpec:
        """An observation whose image stacks this many frames; a mixed one is stored whole, and its image knows it."""
        if not self.mask:
            return replace(self, frames=frames)
        return self.without_mask().with_frames(frames).with_mask(self.mask)

    @property
    def has_names(self) -> bool:
        """Whether the observation is of a Dict or Tuple space."""
        plain = self.without_mask()
        return bool(plain.entries or plain.parts)

    def unpack(self, obs: Any) -> dict[str, Any]:
        """The entries of a packed vector, or of the parts of a mixed observation, by their own names."""
        if self.kind == "image":
            return {self.entries[0].name: obs}
        vector_spec, found = self, {}
        if self.parts:
            found = {name.removeprefix(IMAGES): obs[name] for name, _ in self.parts if name != VECTOR}
            if VECTOR not in obs:
                return found
            vector_spec, obs = self.arrays[VECTOR], obs[VECTOR]
        leading = tuple(obs.shape[:-1])
        numbers = {e.name: obs[..., e.start : e.stop].reshape(*leading, *e.shape) for e in vector_spec.entries}
        return {**numbers, **found}

    @property
    def network_input(self) -> int | tuple[int, ...]:
        """The length of a vector or the shape of an image."""
        plain = self.without_mask()
        return plain.shape if plain.kind == "image" else plain.size

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def space_name(self) -> str:
        """The name of the Gymnasium space: `Discrete(4)`, `Box(6,)`."""
        if self.kind == "multi_discrete":
            joint = math.prod(self.multi_choices)
            return f"MultiDiscrete({list(self.multi_choices)}), {joint} joint actions, more than {MAX_JOINT_ACTIONS}"
        if self.kind == "discrete":
            return f"MultiDiscrete({list(self.multi_choices)})" if self.multi_choices else f"Discrete({self.choices})"
        return f"{'' if self.bounded else 'unbounded '}Box({self.size},)"

    @property
    def stored_as_frames(self) -> bool:
        """Whether a replay stores every frame once instead of whole stacks."""
        return bool(self.images)

    @property
    def numbers(self) -> ArraySpec | None:
        """The vector that a normaliser applies to; None: there are only images."""
        return self if self.kind == "vector" else self.arrays.get(VECTOR)

    @property
    def images(self) -> dict[str, ArraySpec]:
        """The images of the observation by name."""
        if self.kind == "image":
            return {"": self}
        return {name: part for name, part in self.parts if part.kind == "image"}

    @property
    def vector_bytes(self) -> int:
        """The bytes of the vector in a mixed observation."""
        return self.arrays[VECTOR].nbytes if VECTOR in self.arrays else 0

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """The shape of one frame: of a stack of images, or all images of a mixed observation as bytes."""
        if self.parts:
            return (self.shape[0] - self.vector_bytes,)
        return (self.shape[0] // self.frames, *self.shape[1:])

    @property
    def channels_last(self) -> tuple[str, tuple[int, ...]] | None:
        """The name and shape of an image whose last axis is probably its channels: it is short, or follows a square."""
        for name, one in self.images.items():
            if _looks_channels_last(*one.shape):
                return name.removeprefix(IMAGES), one.shape
        return None

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of a Dict or Tuple observation's entries, by the names under which features receive them."""
        vector_spec = self.arrays.get(VECTOR, self) if self.parts else self
        numbers = {} if self.kind == "image" else {entry.name: entry.shape for entry in vector_spec.entries}
        pictures = {name.removeprefix(IMAGES): one.shape for name, one in self.images.items()}
        if self.kind == "image" and self.entries:
            pictures = {self.entries[0].name: self.shape}
        return {**numbers, **pictures}

    def sample(self, rng: np.random.Generator, rows: int) -> Array:
        """Uniformly random actions; normally distributed ones where there are no bounds."""
        if self.kind == "discrete":
            return rng.integers(self.choices, size=rows)
        if self.kind == "multi_discrete":
            return rng.integers(self.multi_choices, size=(rows, *self.shape))
        if not self.bounded:
            return rng.standard_normal((rows, *self.shape)).astype(np.float32)
        return rng.uniform(-1, 1, (rows, *self.shape)).astype(np.float32)

    def from_uniforms(self, uniforms: Any) -> Any:
        """Actions distributed as in `sample`, from a tensor of uniform numbers in [0, 1)."""
        if self.kind == "discrete":  # just below 1 a float times 9 rounds to 9, hence the bound
            return (uniforms * self.choices).long().clamp(max=self.choices - 1)
        if self.kind == "multi_discrete":
            chosen = uniforms.clone()
            for element, choices in enumerate(self.multi_choices):
                chosen[..., element] = (uniforms[..., element] * choices).floor().clamp(max=choices - 1)
            return chosen.long()
        centred = 2 * uniforms - 1
        return centred if self.bounded else (centred * (1 - 1e-6)).erfinv() * math.sqrt(2)

    def exploration_noise(self, rows: int) -> tuple[str, tuple[int, ...]]:
        """Distribution and shape of the random numbers that `rows` exploring actions need."""
        if self.kind == "discrete":
            return "uniform", (rows, 2)
        return "uniform" if self.kind == "multi_discrete" else "normal", (rows, *self.shape)

    def perturbed(
        self,
        actions: Array,
        amount: float,
        rng: np.random.Generator,
        allowed: Callable[[Array], Array] = lambda drawn: drawn,
    ) -> Array:
        """Actions with noise of standard deviation `amount`, or with probability `amount` a random choice.

        `allowed`: turns random choices among all into random ones among those that action masks allow.
        """
        if self.mask_size:
            chosen = rng.random(len(actions)) < amount
            random = allowed(self.sample(rng, len(actions)))
            return np.where(chosen.reshape(-1, *(1,) * len(self.shape)), random, actions)
        noisy = actions + amount * rng.standard_normal(actions.shape)
        return (np.clip(noisy, -1, 1) if self.bounded else noisy).astype(np.float32)

    @property
    def max_noise(self) -> float:
        """The largest `amount` for `perturbed`: a probability, or any standard deviation."""
        return 1.0 if self.mask_size else math.inf

    def contains(self, values: Any) -> bool:
        """Whether every discrete value is a valid choice; True for the other kinds. Arrays or tensors."""
        if self.kind == "multi_discrete":
            below = all(bool((values[..., one] < choices).all()) for one, choices in enumerate(self.multi_choices))
            return below and bool((values >= 0).all())
        return self.kind != "discrete" or bool(((values >= 0) & (values < self.choices)).all())


def _looks_channels_last(first: int, second: int, third: int) -> bool:
    return third <= max(4, min(first, second) // 2) or first == second != third


def vector(size: int, dtype: str = "float32") -> ArraySpec:
    """A vector observation."""
    return ArraySpec("vector", (size,), dtype)


def image(*shape: int, frames: int = 1) -> ArraySpec:
    """An image observation: (channels, height, width) of bytes."""
    return ArraySpec("image", shape, "uint8", frames=frames)


def mixed(parts: Mapping[str, ArraySpec]) -> ArraySpec:
    """An observation of several arrays: `vector` first, if there is one, then images, `images.<name>`, then `mask`."""
    if MASK in parts and (list(parts)[-1] != MASK or len(parts) == 1 or parts[MASK].dtype != "uint8"):
        raise UserError(f"mask must be the last part of an observation, of uint8, got {', '.join(parts)}")
    size = sum(part.nbytes for part in parts.values())
    padded = -(-size // 4) * 4  # so that every row of bytes starts at a multiple of 4, as views of floats need
    return ArraySpec("mixed", (padded,), "uint8", parts=tuple(parts.items()))


def continuous(size: int, bounded: bool = True) -> ArraySpec:
    """A continuous action."""
    return ArraySpec("continuous", (size,), ACTION_DTYPES["continuous"], bounded=bounded)


def discrete(choices: int, multi_choices: Sequence[int] = ()) -> ArraySpec:
    """A discrete action; `multi_choices`: of the elements whose joint action it is, the last one changing fastest."""
    return ArraySpec("discrete", (), ACTION_DTYPES["discrete"], choices, tuple(multi_choices))


def multi_discrete(choices: Sequence[int]) -> ArraySpec:
    """An action of several discrete elements."""
    return ArraySpec("multi_discrete", (len(choices),), ACTION_DTYPES["multi_discrete"], multi_choices=tuple(choices))


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
