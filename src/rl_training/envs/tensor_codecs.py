"""Conversions between an environment's arrays and a learner's, as functions of tensors: the same as those in `spaces`.

A policy that runs outside this library computes them itself, so that it takes observations and gives actions in the
environment's units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from rl_training.core.specs import IMAGES, MASK, VECTOR
from rl_training.envs.spaces import ActionCodec, ObservationCodec
from rl_training.envs.spaces.leaves import Leaf, OneHot, Picture
from rl_training.envs.spaces.trees import tree

OBSERVATION, ACTION_MASK = "obs", "action_mask"  # names of inputs; an entry of a Dict or Tuple is `obs.<its name>`
NUMBER_LIMIT = 1e3  # wider bounds than this are no hint at the size of observations
Array = NDArray[Any]


@dataclass(frozen=True)
class TensorInput:
    """One input of a policy: a batch of arrays of this shape."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    meaning: str
    low: Any = None  # bounds of its numbers, one for each element or one for all; None: none
    high: Any = None


def leaf_name(leaf: Leaf) -> str:
    return f"{OBSERVATION}.{leaf.name}" if leaf.path else OBSERVATION


def observation_inputs(codec: ObservationCodec) -> list[TensorInput]:
    """The inputs of a policy for an observation: each array of its space, in their order, and the action mask."""
    found = [_leaf_input(leaf) for leaf in codec.leaves]
    if codec.mask:
        found.append(TensorInput(ACTION_MASK, (codec.mask,), "bool", "true where a choice of the action is allowed"))
    return found


def _leaf_input(leaf: Leaf) -> TensorInput:
    name, shape = leaf_name(leaf), tuple(leaf.space.shape or ())
    if isinstance(leaf, OneHot):
        low, high = leaf.first, leaf.first + leaf.choices - 1
        what = "a choice" if not shape else "choices"
        return TensorInput(name, shape, "int64", what, low.reshape(shape).tolist(), high.reshape(shape).tolist())
    if isinstance(leaf, Picture):
        return TensorInput(name, shape, "uint8", "an image as bytes, in the environment's order of axes", 0, 255)
    bounds = (leaf.space.low, leaf.space.high) if isinstance(leaf.space, spaces.Box) else (0, 1)
    return TensorInput(name, shape, "float32", "numbers in the environment's units", *(_bound(one) for one in bounds))


def _bound(values: Any) -> Any:
    """A bound as JSON: one number where it is the same everywhere, null where there is none."""
    flat = np.asarray(values)
    listed = flat.astype(object)  # Python's numbers: choices stay whole
    listed[~np.isfinite(flat)] = None
    same = flat.size > 0 and bool((flat == flat.flat[0]).all())
    return listed.flat[0] if same else listed.tolist()


def encode_tensors(codec: ObservationCodec, inputs: Mapping[str, Tensor]) -> Any:
    """An observation as networks receive it before normalisation: `tensors.observations.split` of the encoded rows."""
    vectors = [_vector(leaf, inputs[leaf_name(leaf)]) for leaf in codec.leaves if not leaf.is_image]
    pictures = {f"{IMAGES}{leaf.name}": inputs[leaf_name(leaf)] for leaf in codec.leaves if leaf.is_image}
    vector = {VECTOR: vectors[0] if len(vectors) == 1 else torch.cat(vectors, -1)} if vectors else {}
    mask = {MASK: inputs[ACTION_MASK]} if codec.mask else {}
    arrays = {**vector, **pictures, **mask}
    return arrays if codec.spec.parts else next(iter(arrays.values()))


def _vector(leaf: Leaf, values: Tensor) -> Tensor:
    """The numbers of one leaf: (rows, size)."""
    if not isinstance(leaf, OneHot):
        return values if values.dim() == 2 else values.flatten(1) if values.dim() > 2 else values.unsqueeze(1)
    flat = values.flatten(1) if values.dim() > 1 else values.unsqueeze(1)
    hot = [
        flat[:, number : number + 1] == torch.arange(first, first + count)
        for number, (first, count) in enumerate(zip(leaf.first.tolist(), leaf.choices.tolist(), strict=True))
    ]
    return (hot[0] if len(hot) == 1 else torch.cat(hot, -1)).float()


def actions_to_env(codec: ActionCodec, actions: Tensor) -> Tensor:
    """A batch of the library's actions in the environment's units and dtype, as `ActionCodec.to_env`."""
    space, dtype = codec.space, getattr(torch, codec.env_dtype.name)
    if isinstance(space, spaces.Discrete):
        return actions + int(space.start) if int(space.start) else actions
    if isinstance(space, spaces.Box):
        values, (low, high) = actions.reshape(-1, *space.shape), _limits(space)
        if codec.spec.bounded and dtype == torch.float32 and np.array_equal(space.low, -space.high):
            return torch.clamp(values * high, low, high)  # rounded once, as below
        values = values.double()
        if codec.spec.bounded:
            low, high = (one.double() if isinstance(one, Tensor) else one for one in (low, high))
            values = low + (values + 1.0) * ((high - low) / 2)
        return torch.clamp(values, low, high).to(dtype)
    choices = codec.spec.multi_choices
    index = actions
    if codec.spec.kind == "discrete":
        strides = [int(np.prod(choices[number + 1 :])) for number in range(len(choices))]
        pairs = zip(strides, choices, strict=True)
        index = torch.stack([actions // stride % count for stride, count in pairs], -1)
    start = np.asarray(getattr(space, "start", 0), np.int64)
    found = index.reshape(-1, *space.shape)
    return (found + torch.from_numpy(start) if start.any() else found).to(dtype)


def _limits(space: spaces.Box) -> tuple[Any, Any]:
    """The bounds of a Box: two numbers where they are the same for all elements."""
    bounds = (space.low, space.high)
    if all((one == one.flat[0]).all() for one in bounds):
        return float(space.low.flat[0]), float(space.high.flat[0])
    return torch.from_numpy(space.low), torch.from_numpy(space.high)


def input_arrays(codec: ObservationCodec, obs: Any, mask: Array | None = None) -> dict[str, Array]:
    """A batch of observations in the environment's form, and their action masks, as inputs by name."""
    found = {}
    for leaf, one in zip(codec.leaves, observation_inputs(codec), strict=False):
        found[one.name] = np.ascontiguousarray(np.asarray(leaf.value_in(obs)), np.dtype(one.dtype))
    if codec.mask:
        rows = len(next(iter(found.values())))
        everything = np.ones((rows, codec.mask), np.bool_)
        found[ACTION_MASK] = everything if mask is None else np.asarray(mask, np.bool_)
    return found


def sample_observations(
    codec: ObservationCodec, rng: np.random.Generator, rows: int, scales: tuple[Array, Array] | None = None
) -> tuple[Any, Array | None]:
    """Random observations in the environment's form, and action masks that allow something; None: there are none.

    `scales`: the mean and standard deviation of the observation's vector, by which half of the rows are drawn.
    """
    found = {leaf.path: _sample(leaf, rng, rows) for leaf in codec.leaves}
    if scales is not None:
        half = rng.random(rows) < 0.5
        for leaf in codec.leaves:
            if not leaf.is_image and isinstance(leaf.space, spaces.Box):  # choices and flags stay what they are
                shape = (rows, *(leaf.space.shape or ()))
                mean, std = (one[leaf.slice] for one in scales)
                drawn = (mean + std * rng.standard_normal((rows, leaf.size))).reshape(shape)
                found[leaf.path] = np.where(half.reshape(-1, *(1,) * (len(shape) - 1)), drawn, found[leaf.path])
    obs = tree(codec.space, (), found)
    return obs, _sample_masks(codec, rng, rows) if codec.mask else None


def _sample(leaf: Leaf, rng: np.random.Generator, rows: int) -> Array:
    shape = (rows, *(leaf.space.shape or ()))
    if isinstance(leaf, OneHot):
        return (leaf.first + rng.integers(leaf.choices, size=(rows, len(leaf.choices)))).reshape(shape)
    if isinstance(leaf, Picture):
        return rng.integers(256, size=shape, dtype=np.uint8)
    if not isinstance(leaf.space, spaces.Box):
        return rng.integers(2, size=shape).astype(np.float32)
    low, high = leaf.space.low.astype(np.float64), leaf.space.high.astype(np.float64)
    narrow = (np.abs(low) < NUMBER_LIMIT) & (np.abs(high) < NUMBER_LIMIT)
    inside = rng.uniform(np.where(narrow, low, 0), np.where(narrow, high, 1), size=shape)
    # Without useful bounds: sizes from a tenth to ten.
    sizes = 10 ** rng.uniform(-1, 1, size=(rows, *(1,) * (len(shape) - 1)))
    return np.where(narrow, inside, np.clip(sizes * rng.standard_normal(shape), low, high)).astype(np.float32)


def _sample_masks(codec: ObservationCodec, rng: np.random.Generator, rows: int) -> Array:
    assert codec.masked_action is not None
    masks = rng.random((rows, codec.mask)) < 0.5
    start, counts = 0, codec.masked_action.multi_choices or (codec.mask,)
    for count in counts:
        masks[np.arange(rows), start + rng.integers(count, size=rows)] = True
        start += count
    return masks


def chosen_elements(codec: ActionCodec, actions: Array) -> Array:
    """Discrete actions in the environment's units as an index for each element: (rows, elements)."""
    index = codec.from_env(actions)
    choices: Sequence[int] = codec.spec.multi_choices
    if choices and codec.spec.kind == "discrete":
        return np.stack(np.unravel_index(index, tuple(choices)), -1)
    return index.reshape(len(index), -1)


def action_difference(codec: ActionCodec, found: Array, expected: Array) -> tuple[float, Array]:
    """The largest difference of numbers, relative to an action's range beyond 1; of choices, the rows that differ."""
    if not codec.can_be_clipped:
        rows = (found != expected).reshape(len(found), -1).any(-1)
        return 0.0, np.flatnonzero(rows)
    difference = np.abs(found.astype(np.float64) - expected.astype(np.float64))
    half_range = (np.asarray(codec.space.high, np.float64) - np.asarray(codec.space.low, np.float64)) / 2
    scale = half_range if codec.spec.bounded else np.abs(expected)
    largest = float((difference / np.maximum(scale, 1)).max())
    return largest if np.isfinite(largest) else float("inf"), np.arange(0)


def first_observation(batch: Any) -> Any:
    """The first observation of a batch in the environment's form, or the first of other arrays."""
    if isinstance(batch, Mapping):
        return {key: first_observation(one) for key, one in batch.items()}
    return tuple(first_observation(one) for one in batch) if isinstance(batch, tuple) else batch[0]


def action_output(codec: ActionCodec) -> TensorInput:
    """The first output of a policy: actions in the environment's units."""
    shape, dtype, space = codec.env_shape, codec.env_dtype.name, codec.space
    if isinstance(space, spaces.Box):
        what = "the action in the environment's units"
        return TensorInput("action", shape, dtype, what, _bound(space.low), _bound(space.high))
    first = np.asarray(getattr(space, "start", 0))
    counts = np.asarray(space.n if isinstance(space, spaces.Discrete) else getattr(space, "nvec", 2))
    return TensorInput("action", shape, dtype, "the chosen action", _bound(first), _bound(first + counts - 1))
