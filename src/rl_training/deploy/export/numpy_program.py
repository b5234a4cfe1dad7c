"""Translates the graph of a policy to a list of numpy calls, which `numpy_runner` runs without torch."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from rl_training.core.checks import UserError, one_line
from rl_training.deploy.export.numpy_rules import RULES, Calls
from rl_training.deploy.export.policy import Policy
from rl_training.deploy.export.tracing import check_precision, layer_of, quiet, traced

Array = NDArray[Any]
# Operations that change nothing here.
SAME = ("clone", "detach", "alias", "contiguous", "lift_fresh_copy", "dropout")
SKIPPED = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size")
ONE_ARGUMENT = {
    "abs": "abs", "neg": "negative", "exp": "exp", "log": "log", "tanh": "tanh", "sin": "sin", "cos": "cos",
    "sqrt": "sqrt", "square": "square", "reciprocal": "reciprocal", "logical_not": "logical_not",
    "bitwise_not": "logical_not",
}  # fmt: skip
TWO_ARGUMENTS = {
    "mul": "multiply", "maximum": "maximum", "minimum": "minimum", "matmul": "matmul", "mm": "matmul", "bmm": "matmul",
    "gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal",
    "logical_and": "logical_and", "logical_or": "logical_or", "bitwise_and": "logical_and", "bitwise_or": "logical_or",
    "remainder": "remainder", "floor_divide": "floor_divide", "pow": "power", "sym_size": "size",
}  # fmt: skip


def to_npz(policy: Policy) -> bytes:
    """The bytes of an .npz file with the policy's arrays and its program."""
    with quiet():
        graph = traced(policy).run_decompositions({})
    check_precision(graph, "numpy")
    program = _Program(graph)
    inputs = [[one.name, list(one.shape), one.dtype] for one in policy.inputs]
    steps, outputs = program.translate([one.name for one in policy.inputs], policy.output_names)
    text = json.dumps({"inputs": inputs, "steps": steps, "outputs": outputs})
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, program=np.array(text), **program.arrays)
    return file.getvalue()


class _Program(Calls):
    """The numpy calls of a graph, and its constants by name."""

    def __init__(self, graph: ExportedProgram) -> None:
        super().__init__()
        self.graph, self.arrays = graph, dict[str, Array]()
        self.values: dict[Node, Any] = {}  # what a node is: a reference "%name" or a constant

    def translate(self, inputs: Sequence[str], outputs: Sequence[str]) -> tuple[list[list[Any]], dict[str, str]]:
        signature, names = self.graph.graph_signature, iter(inputs)
        stored = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        results: dict[str, str] = {}
        for node in self.graph.graph.nodes:
            if node.op == "placeholder" and node.name in stored:
                place = stored[node.name]
                tensor = self.graph.state_dict[place] if place in self.graph.state_dict else self.graph.constants[place]
                self.values[node] = self._constant(node.name, tensor) if node.users else None
            elif node.op == "placeholder":
                self.values[node] = f"%{next(names)}"
            elif node.op == "output":
                found = [self.values[one] for one in node.args[0]]
                results = {name: one[1:] for name, one in zip(outputs, found, strict=True)}
            else:
                self.values[node] = self._translate(node)
        return self.steps, results

    def _constant(self, name: str, tensor: Any) -> str:
        self.arrays[name] = tensor.detach().numpy()
        return f"%{name}"

    def _translate(self, node: Node) -> Any:
        target: Any = node.target
        name = getattr(target, "__name__", str(target)).split(".")[0]  # aten.add.Tensor: "add"
        given = [self._value(one) for one in node.args]
        options = {key: self._value(one) for key, one in node.kwargs.items()}
        if name in SKIPPED:
            return None
        if name in SAME:
            return given[0]
        if name == "getitem":
            return given[0][given[1]] if isinstance(given[0], list) else self.call("item", given, node)
        constant = isinstance(node.meta.get("val"), Tensor) and not node.all_input_nodes
        if constant:  # such as arange
            return self._constant(
                node.name, target(*node.args, **{k: v for k, v in node.kwargs.items() if k != "device"})
            )
        if name in ONE_ARGUMENT:
            return self.call(ONE_ARGUMENT[name], given[:1], node)
        if name in TWO_ARGUMENTS:
            return self.call(TWO_ARGUMENTS[name], given[:2], node)
        rule = RULES.get(name)
        if rule is None or getattr(target, "_overloadname", "") == "dtype":  # view of the bits as another type
            why = f"it computes {name}; ONNX has more operations"
            raise UserError(f"{layer_of(node)} cannot be exported to numpy: {why}")
        try:
            return rule(self, node, *given, **options)
        except UserError:
            raise
        except Exception as error:  # its arguments are not of the kinds that the rule knows
            why = f"{type(error).__name__}: {one_line(error)}"
            raise UserError(f"{layer_of(node)} cannot be exported to numpy: {name} ({why})") from error

    def _value(self, argument: Any) -> Any:
        if isinstance(argument, Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._value(one) for one in argument]
        return argument if isinstance(argument, (int, float, bool, str, type(None))) else str(argument)
