"""Conversion of spaces from and to Minari's metadata."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.envs.spaces.files import box_to_dict
from rl_training.files.atomic import MAX_JSON_BYTES

Array = NDArray[Any]


def space_from_minari(text: Any) -> dict[str, Any] | None:
    """Minari's description of a space in this library's form; None for kinds that are not supported."""
    try:
        if not isinstance(text, str) or len(text) > MAX_JSON_BYTES:
            return None
        return _described(json.loads(text))  # bounds may be Infinity, which strict JSON does not have
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError, AttributeError):
        return None


def _described(values: Any) -> dict[str, Any]:
    kind = values["type"]
    if kind == "Dict":
        return {"kind": "dict", "spaces": [[key, _described(one)] for key, one in values["subspaces"].items()]}
    if kind == "Tuple":
        return {"kind": "tuple", "spaces": [_described(one) for one in values["subspaces"]]}
    if kind == "Discrete":
        return {"kind": "discrete", "n": int(values["n"]), "start": int(values["start"])}
    if kind == "MultiBinary":
        return {"kind": "multi_binary", "shape": np.atleast_1d(values["n"]).astype(int).tolist()}
    if kind == "MultiDiscrete":
        counts = np.asarray(values["nvec"], np.int64)
        start = np.asarray(values.get("start", np.zeros_like(counts)), np.int64)
        whole = {"nvec": counts.reshape(-1).tolist(), "start": start.reshape(-1).tolist()}
        return {"kind": "multi_discrete", "shape": list(counts.shape), "dtype": str(values["dtype"]), **whole}
    if kind != "Box":
        raise ValueError(f"{kind} is not supported")
    shape = [int(length) for length in values["shape"]]
    # Not by a Box: one that cannot be made is rejected later, and must not count as a space that is not described.
    return box_to_dict(shape, str(values["dtype"]), {name: values[name] for name in ("low", "high")})


def space_to_minari(space: dict[str, Any] | None, values: Array) -> dict[str, Any]:
    """A space in Minari's form; unknown bounds are infinite, an unknown number of choices is taken from the values."""
    if space is None and values.ndim == 1 and values.dtype.kind != "f":
        start = min(int(values.min()), 0)
        return {"type": "Discrete", "dtype": "int64", "start": start, "n": int(values.max()) + 1 - start}
    if space is None:
        shape, dtype = list(values.shape[1:]), values.dtype.name
        space = {"shape": shape, "dtype": dtype, "low": ["-inf"], "high": ["inf"], "kind": "box"}
    return _in_minari(space)


def _in_minari(space: dict[str, Any]) -> dict[str, Any]:
    if space["kind"] == "dict":
        return {"type": "Dict", "subspaces": {key: _in_minari(one) for key, one in space["spaces"]}}
    if space["kind"] == "tuple":
        return {"type": "Tuple", "subspaces": [_in_minari(one) for one in space["spaces"]]}
    if space["kind"] == "discrete":
        return {"type": "Discrete", "dtype": "int64", "start": space["start"], "n": space["n"]}
    if space["kind"] == "multi_binary":
        return {"type": "MultiBinary", "n": space["shape"]}
    if space["kind"] == "multi_discrete":
        arrays = {name: np.reshape(space[name], space["shape"]).tolist() for name in ("nvec", "start")}
        return {"type": "MultiDiscrete", "dtype": space["dtype"], **arrays}
    shape, size = space["shape"], math.prod(space["shape"])
    bounds = {}
    for name in ("low", "high"):
        numbers = [float(text) for text in space[name]]
        bounds[name] = np.reshape(numbers * size if len(numbers) == 1 else numbers, shape).tolist()
    return {"type": "Box", "dtype": space["dtype"], "shape": shape, **bounds}
