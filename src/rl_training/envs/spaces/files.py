"""Spaces as JSON, for files that are read without the environment."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rl_training.core.checks import shown

MAX_SPACE = 2**24  # numbers in an observation or action
MAX_DEPTH = 16  # of nested Dict and Tuple spaces


def space_to_dict(space: spaces.Space[Any]) -> dict[str, Any]:
    """A supported space as JSON."""
    if isinstance(space, spaces.Discrete):
        return {"kind": "discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        lists = {"nvec": space.nvec, "start": space.start}
        whole = {name: np.asarray(one, np.int64).reshape(-1).tolist() for name, one in lists.items()}
        return {"kind": "multi_discrete", "shape": list(space.shape), "dtype": np.dtype(space.dtype).name, **whole}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "multi_binary", "shape": list(space.shape)}
    if isinstance(space, spaces.Dict):
        # A list keeps the order of the keys, which that of the network's inputs follows.
        return {"kind": "dict", "spaces": [[key, space_to_dict(one)] for key, one in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "tuple", "spaces": [space_to_dict(one) for one in space.spaces]}
    assert isinstance(space, spaces.Box)
    return box_to_dict(space.shape, np.dtype(space.dtype).name, {"low": space.low, "high": space.high})


def box_to_dict(shape: Sequence[int], dtype: str, bounds: Mapping[str, Any]) -> dict[str, Any]:
    """A Box as JSON; `bounds` are arrays of its shape, or nested lists."""
    arrays = {name: np.asarray(bound, np.float64).reshape(shape) for name, bound in bounds.items()}
    same = {name: bool(array.size) and bool((array == array.flat[0]).all()) for name, array in arrays.items()}
    # repr keeps every bit and infinity; a bound that is the same everywhere is written once
    texts = {k: [repr(float(bound)) for bound in (v.flat[:1] if same[k] else v.flat)] for k, v in arrays.items()}
    return {"kind": "box", "shape": list(shape), "dtype": dtype, **texts}


def space_from_dict(values: dict[str, Any], depth: int = 0) -> spaces.Space[Any]:
    """The inverse of `space_to_dict`. The description is untrusted: sizes are checked first."""
    if depth > MAX_DEPTH:
        raise ValueError(f"a space of more than {MAX_DEPTH} levels is not supported")
    kind = values["kind"]
    if kind == "dict":
        # Gymnasium sorts the keys of a plain dict.
        return spaces.Dict(OrderedDict((_key(key), space_from_dict(one, depth + 1)) for key, one in values["spaces"]))
    if kind == "tuple":
        return spaces.Tuple([space_from_dict(one, depth + 1) for one in values["spaces"]])
    if kind == "discrete":
        if not 0 < int(values["n"]) <= MAX_SPACE:
            raise ValueError(f"a space of {shown(values['n'])} choices is not supported")
        return spaces.Discrete(int(values["n"]), start=int(values["start"]))
    shape = tuple(int(length) for length in values["shape"])
    if not 0 < math.prod(shape) <= MAX_SPACE or min(shape, default=1) < 1:
        raise ValueError(f"a space of shape {shown(values['shape'])} is not supported")
    if kind == "multi_binary":
        return spaces.MultiBinary(shape if len(shape) > 1 else shape[0])
    if kind == "multi_discrete":
        return _multi_discrete(values, shape)
    return _box(values, shape)


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the keys of a Dict space must be strings, got {shown(value)}")
    return value


def _multi_discrete(values: dict[str, Any], shape: tuple[int, ...]) -> spaces.MultiDiscrete:
    counts, start = (np.array([int(one) for one in values[name]], np.int64) for name in ("nvec", "start"))
    if len(counts) != math.prod(shape) or len(start) != len(counts) or (counts < 1).any() or counts.sum() > MAX_SPACE:
        raise ValueError(f"a space of {shown(values['nvec'])} choices is not supported")
    dtype = _number_type(values["dtype"], "iu")
    return spaces.MultiDiscrete(counts.reshape(shape), dtype=dtype.type, start=start.reshape(shape))


def _box(values: dict[str, Any], shape: tuple[int, ...]) -> spaces.Box:
    size = math.prod(shape)
    if any(len(values[name]) not in (1, size) for name in ("low", "high")):
        raise ValueError(f"a space of shape {shown(values['shape'])} is not supported")
    dtype = _number_type(values["dtype"], "fiu")
    bounds = []
    for name in ("low", "high"):
        numbers = np.array([_bound(float(text), dtype) for text in values[name]], dtype)
        bounds.append(np.full(shape, numbers[0]) if len(numbers) == 1 else numbers.reshape(shape))
    return spaces.Box(bounds[0], bounds[1], shape, dtype.type)


def _number_type(name: Any, kinds: str) -> np.dtype[Any]:
    dtype = np.dtype(name if isinstance(name, str) and name.isalnum() else object)  # numpy would parse anything else
    if dtype.kind not in kinds:
        raise ValueError(f"dtype must be a number type, got {shown(name)}")
    return dtype


def _bound(number: float, dtype: np.dtype[Any]) -> float | int:
    """A bound clamped to the range of its type: a float cannot represent the largest integers, nor they infinity."""
    if dtype.kind == "f":
        return number
    limits = np.iinfo(dtype)
    return int(number) if limits.min < number < limits.max else int(limits.max if number > 0 else limits.min)
