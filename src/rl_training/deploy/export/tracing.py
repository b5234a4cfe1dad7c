"""Traces a policy to a graph of tensor operations, and names the layer of an operation that cannot be exported."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from rl_training.core.checks import UserError, one_line
from rl_training.deploy.export.policy import Policy
from rl_training.deploy.export.simplify import simplified

ROWS = 3  # of the traced batch: 1 would be taken for a constant
NETWORKS = "networks."  # the prefix of a layer's name in a policy


def traced(policy: Policy) -> ExportedProgram:
    """The policy as a simplified graph whose batch has any number of rows, or an error that names the layer."""
    examples = policy.examples(ROWS)
    shapes = tuple({0: Dim("batch")} for _ in examples)
    layers = _Layers(policy)
    try:
        with quiet(), layers, torch.no_grad():
            program = torch.export.export(policy, examples, dynamic_shapes={"inputs": shapes})
            return torch.export.export(simplified(program), examples, dynamic_shapes=shapes)
    except Exception as error:  # of any kind: the network may be the user's
        raise UserError(f"{layers.blamed()} cannot be exported: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = str(error)
    if "specialized" in text and "batch" in text:
        return "it computes with the number of rows as a constant; x.shape[0] instead of len(x) stays variable"
    if "data-dependent" in text:
        return "what it computes depends on values, such as `if x.sum() > 0`; torch.where does not"
    return f"{type(error).__name__}: {one_line(text)[:200]}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings and log lines of exporters about themselves."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


class _Layers:
    """Records the layers that are entered while a policy runs, to name the one that failed."""

    def __init__(self, policy: Policy) -> None:
        self.names = {id(one): name.removeprefix(NETWORKS) for name, one in policy.named_modules()}
        self.entered: list[nn.Module] = []
        self.counting: list[nn.Module] = []  # the layers that were entered when len() of a tensor was called

    def __enter__(self) -> _Layers:
        lengths: Any = _Lengths(self)
        self._lengths = lengths.__enter__()
        self._handles = [
            register_module_forward_pre_hook(lambda module, _: self.entered.append(module)),
            register_module_forward_hook(lambda module, *_: self._leave(module)),
        ]
        return self

    def _leave(self, module: nn.Module) -> None:
        if self.entered and self.entered[-1] is module:
            self.entered.pop()

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._lengths.__exit__(*error)

    def blamed(self) -> str:
        """The name and class of the layer in which the trace ended."""
        inside = [one for one in self.entered or self.counting if not isinstance(one, Policy)]
        known = [self.names[id(one)] for one in inside if id(one) in self.names]
        if not known:
            return "the policy"
        return f"layer {known[-1]} ({type(inside[-1]).__name__})"


class _Lengths(TorchFunctionMode):
    """Notes the layer that calls len() of a tensor, which makes the number of rows a constant."""

    def __init__(self, layers: _Layers) -> None:
        super().__init__()
        self.layers = layers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "__len__" and self.layers.entered:
            self.layers.counting = list(self.layers.entered)
        return func(*args, **(kwargs or {}))


def layer_of(node: torch.fx.Node) -> str:
    """The layer of an operation in a graph, for a message."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"layer {path.removeprefix(NETWORKS)} ({kind.rpartition('.')[2]})" if path else "the policy"
