"""Traces a policy to a graph of tensor operations, and names the layer of an operation that cannot be exported."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode

from rl_training.core.checks import UserError, one_line
from rl_training.deploy.export.policy import Policy
from rl_training.deploy.export.simplify import simplified
from rl_training.models.own import OWN, OwnNetworks

ROWS = 3  # of the traced batch: 1 would be taken for a constant
NETWORKS = "networks."  # the prefix of a layer's name in a policy


def traced(policy: Policy) -> ExportedProgram:
    """The policy as a simplified graph whose batch has any number of rows, or an error that names the layer."""
    examples = policy.examples(ROWS)
    shapes = tuple({0: Dim("batch")} for _ in examples)
    layers = _Layers(policy)
    try:
        with quiet(), _own_modules_shown(policy), layers, _VariableRows(), torch.no_grad(), _vmap_ended():
            program = torch.export.export(policy, examples, dynamic_shapes={"inputs": shapes})
            return torch.export.export(simplified(program), examples, dynamic_shapes=shapes)
    except Exception as error:  # of any kind: the network may be the user's
        raise UserError(f"{layers.blamed()} cannot be exported: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = str(error)
    if "specialized" in text and "batch" in text:
        return "it computes with the number of rows as a constant, as len(x) and int() do; x.shape[0] stays variable"
    if "data-dependent" in text:
        return "what it computes depends on values, such as `if x.sum() > 0`; torch.where does not"
    return f"{type(error).__name__}: {one_line(text)[:200]}"


@contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings, log lines and graphs that exporters print."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _vmap_ended() -> Iterator[None]:
    """Leave what an interrupted graph has entered: it has the begin and the end of vmap as operations."""
    depth = torch._C._functorch.get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


@contextmanager
def _own_modules_shown(policy: Policy) -> Iterator[None]:
    with ExitStack() as shown:
        for one in [one for one in policy.modules() if isinstance(one, OwnNetworks)]:
            shown.enter_context(one.module_shown())
        yield


class _Layers:
    """Records the layers that are entered while a policy runs, to name the one that failed."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.entered: list[nn.Module] = []
        self.counting: list[nn.Module] = []  # the layers in which the number of rows became a constant
        self.rows: Any = None  # their number: a symbol, until it becomes a constant

    def __enter__(self) -> _Layers:
        self.names = {id(one): _layer_name(name) for name, one in self.policy.named_modules()}
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(lambda module, *_: self._leave(module)),
        ]
        return self

    def _enter(self, module: nn.Module, inputs: Any) -> None:
        if isinstance(module, Policy):
            self.rows = inputs[0].shape[0]
        self._note_constant()
        self.entered.append(module)

    def _note_constant(self) -> None:
        if not self.counting and isinstance(self.rows, torch.SymInt) and self.rows.node.expr.is_number:
            self.counting = list(self.entered)

    def _leave(self, module: nn.Module) -> None:
        self._note_constant()
        if self.entered and self.entered[-1] is module:
            self.entered.pop()

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def blamed(self) -> str:
        """The name and class of the layer in which the trace ended."""
        inside = [one for one in self.entered or self.counting if not isinstance(one, Policy)]
        known = [self.names[id(one)] for one in inside if id(one) in self.names]
        if not known:
            return "the policy"
        return f"layer {known[-1]} ({type(inside[-1]).__name__})"


class _VariableRows(TorchFunctionMode):
    """Computes group norm by operations that leave the number of rows variable; torch's own does not under vmap."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (_group_norm if func is nn.functional.group_norm else func)(*args, **(kwargs or {}))


def _group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    groups = x.reshape(x.shape[0], num_groups, -1)
    centred = groups - groups.mean(-1, keepdim=True)
    result = (centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt()).reshape(x.shape)
    shape = (-1, *(1,) * (x.dim() - 2))  # of a channel's number
    result = result if weight is None else result * weight.reshape(shape)
    return result if bias is None else result + bias.reshape(shape)


def _layer_name(path: str) -> str:
    """A layer's name in a message: without what only the policy knows."""
    return path.removeprefix(NETWORKS).replace(f".{OWN}", "")


def check_precision(program: ExportedProgram, to: str) -> None:
    """Reject a policy with products in bfloat16: these formats have none on a CPU, and other products differ."""
    for node in program.graph.nodes:
        if getattr(node.meta.get("val"), "dtype", None) == torch.bfloat16:
            where = layer_of(next((one for one in (node, *node.users) if "nn_module_stack" in one.meta), node))
            raise UserError(f"{where} cannot be exported to {to}: it computes in bfloat16, as .pt2 files can")


def layer_of(node: torch.fx.Node) -> str:
    """The layer of an operation in a graph, for a message."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path, kind = stack[-1] if stack else ("", "")
    kind = kind if isinstance(kind, str) else kind.__name__
    return f"layer {_layer_name(path)} ({kind.rpartition('.')[2]})" if path else "the policy"
