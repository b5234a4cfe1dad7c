"""How each operation of torch is computed by numpy calls, for `numpy_program`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.fx import Node

from rl_training.core.checks import UserError
from rl_training.deploy.export.tracing import layer_of

SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


class Calls:
    """A list of numpy calls: name of the result, function, arguments, dtype."""

    def __init__(self) -> None:
        self.steps: list[list[Any]] = []

    def call(self, function: str, arguments: Sequence[Any], node: Node | None = None) -> str:
        """Add a call; with `node`, its result has the dtype of that node's."""
        value = node.meta.get("val") if node is not None else None
        dtype = str(value.dtype).removeprefix("torch.") if isinstance(value, Tensor) else None
        name = f"v{len(self.steps)}"
        self.steps.append([name, function, list(arguments), dtype])
        return f"%{name}"


def _node_shape(node: Node) -> list[Any]:
    return list(node.meta["val"].shape)


def _rank(node: Any) -> int:
    return len(node.meta["val"].shape)


def _add(p: Calls, n: Node, a: Any, b: Any, alpha: Any = 1) -> str:
    return p.call("add", [a, b if alpha == 1 else p.call("multiply", [b, alpha])], n)


def _sub(p: Calls, n: Node, a: Any, b: Any, alpha: Any = 1) -> str:
    return p.call("subtract", [a, b if alpha == 1 else p.call("multiply", [b, alpha])], n)


def _rsub(p: Calls, n: Node, a: Any, b: Any, alpha: Any = 1) -> str:
    return _sub(p, n, b, a, alpha)


def _div(p: Calls, n: Node, a: Any, b: Any, rounding_mode: Any = None) -> str:
    if rounding_mode == "trunc":
        raise UserError(f"{layer_of(n)} cannot be exported to numpy: it divides with rounding_mode trunc")
    return p.call("floor_divide" if rounding_mode == "floor" else "divide", [a, b], n)


def _clamp(p: Calls, n: Node, x: Any, low: Any = None, high: Any = None, **named: Any) -> str:
    low, high = named.get("min", low), named.get("max", high)
    found = x if low is None else p.call("maximum", [x, low], n)
    return str(found if high is None else p.call("minimum", [found, high], n))


def _relu(p: Calls, n: Node, x: Any) -> str:
    return p.call("maximum", [x, 0], n)


def _rsqrt(p: Calls, n: Node, x: Any) -> str:
    return p.call("reciprocal", [p.call("sqrt", [x], n)], n)


def _log_sigmoid(p: Calls, n: Node, x: Any) -> str:
    decay = p.call("log1p", [p.call("exp", [p.call("negative", [p.call("abs", [x])])])])
    return p.call("subtract", [p.call("minimum", [x, 0]), decay], n)


def _sigmoid(p: Calls, n: Node, x: Any) -> str:
    return p.call("exp", [_log_sigmoid(p, n, x)], n)


def _silu(p: Calls, n: Node, x: Any) -> str:
    return p.call("multiply", [x, _sigmoid(p, n, x)], n)


def _softplus(p: Calls, n: Node, x: Any, beta: float = 1.0, threshold: float = 20.0) -> str:
    return p.call("divide", [p.call("negative", [_log_sigmoid(p, n, p.call("multiply", [x, -beta]))]), beta], n)


def _elu(p: Calls, n: Node, x: Any, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> str:
    inside = p.call("multiply", [p.call("minimum", [x, 0]), input_scale])
    below = p.call("multiply", [p.call("subtract", [p.call("exp", [inside]), 1]), alpha])
    return p.call("multiply", [p.call("where", [p.call("greater", [x, 0]), x, below]), scale], n)


def _selu(p: Calls, n: Node, x: Any) -> str:
    return _elu(p, n, x, SELU_ALPHA, SELU_SCALE)


def _leaky_relu(p: Calls, n: Node, x: Any, slope: float = 0.01) -> str:
    return p.call("where", [p.call("greater", [x, 0]), x, p.call("multiply", [x, slope])], n)


def _softmax(p: Calls, n: Node, x: Any, axis: int, *_: Any, **__: Any) -> str:
    largest = p.call("expand_dims", [p.call("max", [x, axis]), axis])
    powers = p.call("exp", [p.call("subtract", [x, largest])])
    return p.call("divide", [powers, p.call("expand_dims", [p.call("sum", [powers, axis]), axis])], n)


def _layer_norm(
    p: Calls, n: Node, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> str:
    centred = p.call("subtract", [x, _reduced(p, n, "mean", x, range(-len(shape), 0), True)])
    variance = _reduced(p, n, "mean", p.call("square", [centred]), range(-len(shape), 0), True)
    found = p.call("divide", [centred, p.call("sqrt", [p.call("add", [variance, eps])])], n)
    found = found if weight is None else p.call("multiply", [found, weight], n)
    return found if bias is None else p.call("add", [found, bias], n)


def _reduced(p: Calls, n: Node, function: str, x: Any, axes: Any, keep: bool) -> str:
    """A reduction over several axes, one after the other."""
    for axis in axes:
        x = p.call("expand_dims", [p.call(function, [x, axis]), axis])
    for axis in [] if keep else sorted(axes, reverse=True):
        x = p.call("squeeze", [x, axis])
    return str(x)


def _reduction(function: str) -> Callable[..., str]:
    def rule(p: Calls, n: Node, x: Any, axes: Any = None, keepdim: bool = False, **_: Any) -> str:
        rank = _rank(n.args[0])
        listed = list(range(rank)) if axes in (None, []) else [axes] if isinstance(axes, int) else list(axes)
        found = _reduced(p, n, function, x, [axis % rank for axis in listed], keepdim)
        return p.call("reshape", [found, []], n) if axes in (None, []) and not keepdim else found

    return rule


def _argmax(p: Calls, n: Node, x: Any, axis: Any = None, keepdim: bool = False) -> str:
    found = p.call("argmax", [x] if axis is None else [x, axis], n)
    return p.call("expand_dims", [found, axis]) if keepdim else found


def _linear(p: Calls, n: Node, x: Any, weight: Any, bias: Any = None) -> str:
    product = p.call("matmul", [x, p.call("swap", [weight, -1, -2])], n)
    return product if bias is None else p.call("add", [product, bias], n)


def _addmm(p: Calls, n: Node, bias: Any, x: Any, weight: Any) -> str:
    return p.call("add", [bias, p.call("matmul", [x, weight], n)], n)


def _where(p: Calls, n: Node, condition: Any, a: Any, b: Any) -> str:
    return p.call("where", [condition, a, b], n)


def _view(p: Calls, n: Node, x: Any, shape: Any) -> str:
    return p.call("reshape", [x, shape])


def _squeeze(p: Calls, n: Node, x: Any, axis: Any = None) -> str:
    shape = _node_shape(n.args[0])  # type: ignore[arg-type]
    axes = range(len(shape)) if axis is None else [axis] if isinstance(axis, int) else axis
    removed = sorted((one % len(shape) for one in axes if shape[one] == 1), reverse=True)
    for one in removed:
        x = p.call("squeeze", [x, one])
    return str(x)


def _unsqueeze(p: Calls, n: Node, x: Any, axis: int) -> str:
    return p.call("expand_dims", [x, axis])


def _transpose(p: Calls, n: Node, x: Any, first: int = 0, second: int = 1) -> str:
    return p.call("swap", [x, first, second])


def _permute(p: Calls, n: Node, x: Any, axes: Any) -> str:
    return p.call("transpose", [x, axes])


def _expand(p: Calls, n: Node, x: Any, shape: Any, **_: Any) -> str:
    return p.call("expand", [x, shape])


def _slice(p: Calls, n: Node, x: Any, axis: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str:
    return p.call("cut", [x, axis, start, end, step])


def _select(p: Calls, n: Node, x: Any, axis: int, index: Any) -> str:
    return p.call("take", [x, axis, index])


def _split(p: Calls, n: Node, x: Any, sizes: Any, axis: int = 0) -> str:
    listed = [int(one.shape[axis]) for one in n.meta["val"]] if isinstance(sizes, int) else sizes
    return p.call("split", [x, listed, axis])


def _unbind(p: Calls, n: Node, x: Any, axis: int = 0) -> list[str]:
    return [p.call("take", [x, axis, index]) for index in range(len(n.meta["val"]))]


def _cat(p: Calls, n: Node, xs: Any, axis: int = 0) -> str:
    return p.call("concatenate", [xs, axis], n)


def _stack(p: Calls, n: Node, xs: Any, axis: int = 0) -> str:
    return p.call("stack", [xs, axis], n)


def _cast(p: Calls, n: Node, x: Any, *_: Any, **__: Any) -> str:
    return p.call("astype", [x, str(n.meta["val"].dtype).removeprefix("torch.")])


def _pad(p: Calls, n: Node, x: Any, widths: Any, mode: str = "constant", value: Any = None) -> str:
    """Columns of a value behind the last axis."""
    if mode != "constant" or widths[0] or any(widths[2:]):
        raise UserError(f"{layer_of(n)} cannot be exported to numpy: it pads {widths} ({mode})")
    column = p.call("add", [p.call("multiply", [p.call("cut", [x, -1, 0, 1, 1]), 0]), value or 0])
    return p.call("concatenate", [[x, *[column] * widths[1]], -1], n)


def _filled(p: Calls, n: Node, shape: Any, value: Any = 0, **_: Any) -> str:
    return p.call("add", [p.call("zeros", [shape]), value], n)


RULES: dict[str, Callable[..., Any]] = {
    "add": _add, "sub": _sub, "rsub": _rsub, "div": _div, "clamp": _clamp, "clamp_min": _clamp, "hardtanh": _clamp,
    "relu": _relu, "rsqrt": _rsqrt, "log_sigmoid": _log_sigmoid, "sigmoid": _sigmoid, "silu": _silu, "elu": _elu,
    "softplus": _softplus, "selu": _selu, "leaky_relu": _leaky_relu, "softmax": _softmax, "layer_norm": _layer_norm,
    "mean": _reduction("mean"), "sum": _reduction("sum"), "amax": _reduction("max"), "amin": _reduction("min"),
    "argmax": _argmax, "linear": _linear, "addmm": _addmm, "where": _where, "view": _view, "reshape": _view,
    "_unsafe_view": _view, "squeeze": _squeeze, "unsqueeze": _unsqueeze, "transpose": _transpose, "t": _transpose,
    "permute": _permute, "expand": _expand, "slice": _slice, "select": _select, "split": _split,
    "split_with_sizes": _split, "unbind": _unbind, "cat": _cat, "stack": _stack, "_to_copy": _cast, "to": _cast,
    "zeros": _filled, "full": _filled, "pad": _pad, "constant_pad_nd": _pad,
}  # fmt: skip
