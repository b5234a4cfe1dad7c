"""Runs a policy that was exported with `rl-training export --to numpy`; needs numpy and this file alone.

policy = NumpyPolicy("policy.npz")
action = policy({"obs": observations})["action"]  # for a batch of observations, in the environment's units
"""

import json
from typing import Any

import numpy as np

NUMPY = (
    "abs", "add", "argmax", "concatenate", "cos", "divide", "equal", "exp", "expand_dims", "floor_divide", "greater",
    "greater_equal", "less", "less_equal", "log", "log1p", "logical_and", "logical_not", "logical_or", "matmul",
    "max", "maximum", "mean", "min", "minimum", "multiply", "negative", "not_equal", "power", "reciprocal",
    "remainder", "reshape", "sin", "size", "sqrt", "square", "squeeze", "stack", "subtract", "sum", "tanh", "transpose",
    "where", "zeros",
)  # fmt: skip


def astype(x: Any, dtype: Any) -> Any:
    return np.asarray(x).astype(dtype)


def cut(x: Any, axis: Any, start: Any, stop: Any, step: Any) -> Any:
    return x[(slice(None),) * (axis % x.ndim) + (slice(start, stop, step),)]


def expand(x: Any, shape: Any) -> Any:
    own = (1,) * (len(shape) - x.ndim) + x.shape
    return np.broadcast_to(x, [a if b == -1 else b for a, b in zip(own, shape, strict=True)])


def item(x: Any, index: Any) -> Any:
    return x[index]


def split(x: Any, sizes: Any, axis: Any) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def swap(x: Any, first: Any, second: Any) -> Any:
    return np.swapaxes(x, first, second)


def take(x: Any, axis: Any, index: Any) -> Any:
    return np.take(x, index, axis)


# A file can call these functions and no others.
FUNCTIONS: dict[str, Any] = {one.__name__: one for one in (astype, cut, expand, item, split, swap, take)}
FUNCTIONS.update({name: getattr(np, name) for name in NUMPY})


class NumpyPolicy:
    """A policy: a mapping of inputs by name, a batch of each, to its outputs by name."""

    def __init__(self, file: Any) -> None:
        with np.load(file, allow_pickle=False) as data:
            self.values = {name: data[name] for name in data.files}
        self.program = json.loads(str(self.values.pop("program")))

    def __call__(self, inputs: Any) -> Any:
        values = dict(self.values)
        for name, shape, dtype in self.program["inputs"]:
            values[name] = np.asarray(inputs[name], dtype)
            if list(values[name].shape[1:]) != shape:
                raise ValueError(f"{name} must be a batch of shape {shape}, got {values[name].shape}")
        for name, function, arguments, dtype in self.program["steps"]:
            found = FUNCTIONS[function](*[self.argument(one, values) for one in arguments])
            values[name] = found if dtype is None else np.asarray(found, dtype)
        return {name: values[step] for name, step in self.program["outputs"].items()}

    def argument(self, given: Any, values: Any) -> Any:
        if isinstance(given, list):
            return [self.argument(one, values) for one in given]
        return values[given[1:]] if isinstance(given, str) and given.startswith("%") else given
