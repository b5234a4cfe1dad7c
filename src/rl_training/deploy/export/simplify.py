"""Simplifies the graph of a policy: fewer operations, and 2-D products where a layer has one member.

The axis of members makes products 3-D, which runtimes do not join with a bias and an activation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import attrgetter, getitem
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from rl_training.models.distributions import MASKED

aten = torch.ops.aten
# Operations along the axes of their second argument; true: unless the third is true, these axes are left out.
ALONG_AXES: dict[Any, bool] = {
    aten.argmax.default: True, aten.mean.dim: True, aten.sum.dim_IntList: True, aten.amax.default: True,
    aten.softmax.int: False, aten.log_softmax.int: False, aten.slice.Tensor: False,
}  # fmt: skip


def simplified(program: ExportedProgram) -> GraphModule:
    """A module that computes the same up to rounding."""
    for node in list(program.graph.nodes):  # checks of dtypes: under vmap they fail where rows are variable
        if node.target is aten._assert_tensor_metadata.default:
            program.graph.erase_node(node)
    program = program.run_decompositions({})
    module: Any = program.module(check_guards=False)
    if program.graph_signature.buffers_to_mutate:
        return module  # type: ignore[no-any-return]  # what looks like a constant may change
    graph = _Graph(module)
    for rewrite in (
        graph.fold_constant,
        graph.leave_out_axis,
        graph.fold_constant,
        graph.join_row,
        graph.choose_columns,
        graph.average_weights,
        graph.scale_convolution,
        graph.choose_unclamped,
    ):
        for node in list(graph.graph.nodes):
            rewrite(node)
        graph.graph.eliminate_dead_code()
    return GraphModule(graph.constants, graph.graph)


class _Graph:
    """A graph that is rewritten one node at a time, and its constants by name."""

    def __init__(self, module: GraphModule) -> None:
        self.graph = module.graph
        self.constants: dict[str, Tensor] = {}
        for node in self.graph.nodes:
            if node.op == "get_attr":
                self.constants[str(node.target)] = attrgetter(str(node.target))(module).detach()
        self.graph.owning_module = None  # which has none of the constants that are added
        self.thin: dict[Any, tuple[Node, int]] = {}  # of some nodes: the same without an axis of one element; that axis

    def value(self, node: Any) -> Tensor | None:
        """The value of a constant."""
        return self.constants[str(node.target)] if isinstance(node, Node) and node.op == "get_attr" else None

    def _constant(self, place: Node, name: str, value: Tensor) -> Node:
        """A new constant before a node."""
        self.constants[name] = value.contiguous()
        with self.graph.inserting_before(place):
            return self.graph.create_node("get_attr", name)

    def _call(self, place: Node, target: Any, args: Any, kwargs: Any = None) -> Node:
        """A new operation before a node."""
        with self.graph.inserting_before(place):
            return self.graph.call_function(target, tuple(args), kwargs)

    def _replace(self, node: Node, new: Node) -> None:
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)

    def fold_constant(self, node: Node) -> None:
        """Compute what depends on constants alone."""
        inputs = {one: self.value(one) for one in node.all_input_nodes}
        if _is_pure(node) and all(one is not None for one in inputs.values()):
            target: Any = node.target
            args, kwargs = map_arg((node.args, node.kwargs), inputs.__getitem__)
            self._replace(node, self._constant(node, f"constants.{node.name}", target(*args, **kwargs)))

    def leave_out_axis(self, node: Node) -> None:
        """Compute a tensor without an axis of one element, and add the axis where it is needed."""
        value, args = self.value(node), node.args
        first: Any = args[0] if args else None
        if value is not None and value.dim() == 3 and value.shape[0] == 1:
            self._replace_by_thin(node, self._constant(node, str(node.target), value[0]), 0)
        elif node.target is aten.unsqueeze.default:
            self.thin[node] = first, _axis(args[1], _rank(node))
        elif node.target is aten.view.default and _shape(node) == _shape(first):
            node.replace_all_uses_with(first)
        elif node.target is getitem and first.target is aten.unbind.int and first.args[0] in self.thin:
            base, axis = self.thin[first.args[0]]
            if _axis((*first.args, 0)[1], _rank(first.args[0])) == axis:
                node.replace_all_uses_with(base)
        elif first in self.thin and (node.target is aten.squeeze.dim or _is_first(node)):
            base, axis = self.thin[first]
            if _axis(args[1], _rank(first)) == axis:
                node.replace_all_uses_with(base)
        elif node.target is aten.transpose.int and first in self.thin:
            base, axis = self.thin[first]
            one, other = (_axis(one, _rank(first)) for one in args[1:])
            if axis in (one, other) and abs(one - other) == 1:
                self._replace_by_thin(node, base, one + other - axis)
        elif (found := self._simpler(node)) is not None:
            call, axis = found
            self._replace_by_thin(node, self._call(node, *call), axis)

    def _replace_by_thin(self, node: Node, base: Node, axis: int) -> None:
        if not base.meta:
            base.meta = {**node.meta, "val": node.meta["val"].squeeze(axis)}
        new = self._call(node, aten.unsqueeze.default, (base, axis))
        self._replace(node, new)
        self.thin[new] = base, axis

    def _simpler(self, node: Node) -> tuple[tuple[Any, Any, Any], int] | None:
        """A call without an axis that the inputs of a node have, and that axis in its result; None: it needs it."""
        inputs = node.all_input_nodes
        axes = {self.thin[one][1] for one in inputs if one in self.thin}
        if len(axes) != 1 or not isinstance(node.meta.get("val"), Tensor):
            return None
        axis, target, first, rank = axes.pop(), node.target, node.args[0], _rank(node)
        args: Any
        args, kwargs = map_arg((node.args, node.kwargs), lambda one: self.thin[one][0] if one in self.thin else one)
        fits, left_out = False, 0
        if torch.Tag.pointwise in getattr(target, "tags", ()) or target is aten._to_copy.default:
            # The axes of an input without this one must lie behind it.
            fits = all(_rank(one) == rank if one in self.thin else _rank(one) < rank - axis for one in inputs)
        elif target in (aten.bmm.default, aten.matmul.default):
            fits, target = axis == 0 and all(one in self.thin and _rank(one) == 3 for one in inputs), aten.mm.default
        elif target is aten.layer_norm.default and first in self.thin:
            fits = axis < rank - len(args[1])
        elif target in ALONG_AXES and first in self.thin and len(args) > 1:
            several = isinstance(args[1], Sequence)
            along = [_axis(one, _rank(first)) for one in (args[1] if several else args[1:2])]
            shifted = [one - (one > axis) for one in along]
            args = args[0], shifted if several else shifted[0], *args[2:]
            fits, kept = axis not in along, (*args, False)[2]
            left_out = sum(one < axis for one in along) if ALONG_AXES[target] and not kept else 0
        return ((target, args, kwargs), axis - left_out) if fits else None

    def join_row(self, node: Node) -> None:
        """Add a constant row in the product, scale and shift by constant rows in the layer normalisation."""
        source: Any = node.args[0] if node.target in (aten.add.Tensor, aten.mul.Tensor) else None
        row = self.value(node.args[1]) if isinstance(source, Node) else None
        if row is None or row.shape[:-1].numel() != 1 or row.dim() not in (1, 2) or node.kwargs:
            return
        if len(source.users) > 1 or _shape(source) != _shape(node) or source.meta["val"].dtype != row.dtype:
            return
        adds, args = node.target is aten.add.Tensor, list(source.args)
        if source.target is aten.mm.default and adds:
            self._replace(node, self._call(node, aten.addmm.default, (node.args[1], *args)))
        elif source.target is aten.layer_norm.default and args[1] == [len(row.flatten())] and len(args) > 3:
            if args[3] is not None or (args[2] is not None and not adds):
                return
            args[2 + adds] = self._constant(node, f"constants.{node.name}", row.flatten())
            self._replace(node, self._call(node, source.target, args))

    def choose_columns(self, node: Node) -> None:
        """Leave out columns of a product that nothing uses; undo a concatenation that is split again."""
        source, start, stop = _columns(node)
        if source is None or len(source.users) > 1:
            return
        if source.target is aten.addmm.default:
            constants = [one for one in (source.args[0], source.args[2]) if self.value(one) is not None]
            if len(constants) == 2 and all(len(one.users) == 1 for one in constants):
                for name in (str(one.target) for one in constants):
                    value = self.constants[name]
                    self.constants[name] = value[..., start:stop].contiguous() if value.shape[-1] > 1 else value
                self._replace(node, source)
        elif source.target is aten.cat.default:
            pieces: Any = source.args[0]
            widths: list[Any] = [_shape(one)[-1] for one in pieces]
            starts = list(accumulate(widths, initial=0)) if all(isinstance(one, int) for one in widths) else []
            if (start, stop) in pairwise(starts):
                node.replace_all_uses_with(pieces[starts.index(start)])

    def average_weights(self, node: Node) -> None:
        """Average the weights of a product instead of its columns."""
        source, product = _averaged(node)
        constants = [product.args[0], product.args[2]] if product is not None else []
        values: list[Any] = [self.value(one) for one in constants]
        if values and all(one is not None and one.shape[-1] > 1 for one in values):
            means = (one.unflatten(-1, _shape(source)[1:]).mean(-1) for one in values)
            names = (f"constants.{node.name}.{name}" for name in ("bias", "weight"))
            bias, weight = (self._constant(node, name, one) for name, one in zip(names, means, strict=True))
            self._replace(node, self._call(node, aten.addmm.default, (bias, product.args[1], weight)))

    def scale_convolution(self, node: Node) -> None:
        """Scale and shift the parameters of a convolution without padding instead of its images."""
        args: Any = node.args
        if node.target is not aten.conv2d.default or (len(args) > 4 and any(args[4])):
            return
        scaled, scale, shift = args[0], 1.0, 0.0
        while scaled.target in (aten.sub.Tensor, aten.div.Tensor) and _is_by_number(scaled):
            if scaled.target is aten.sub.Tensor:
                shift -= scale * scaled.args[1]
            else:
                scale /= scaled.args[1]
            scaled = scaled.args[0]
        weight, bias = (self.value(one) for one in args[1:3])
        if scaled is not args[0] and weight is not None and bias is not None:
            values = {"weight": weight * scale, "bias": bias + shift * weight.sum((1, 2, 3))}
            made = [self._constant(node, f"constants.{node.name}.{name}", one) for name, one in values.items()]
            node.args = (scaled, *made, *args[3:])

    def choose_unclamped(self, node: Node) -> None:
        """Leave out a bound of values before the largest is chosen that only those of a diverged network are below."""
        clamped: Any = node.args[0] if node.target is aten.argmax.default else None
        if isinstance(clamped, Node) and clamped.target is aten.clamp.default and len(clamped.args) == 2:
            source, low = clamped.args
            if isinstance(source, Node) and isinstance(low, (int, float)) and low <= MASKED / 10:
                node.args = (source, *node.args[1:])


def _is_pure(node: Node) -> bool:
    """Whether a node is an operation that always gives the same tensor for the same inputs."""
    value, tags = node.meta.get("val"), getattr(node.target, "tags", ())
    known = isinstance(value, Tensor) and all(isinstance(size, int) for size in value.shape)
    return node.op == "call_function" and known and torch.Tag.nondeterministic_seeded not in tags


def _is_first(node: Node) -> bool:
    return node.target is aten.select.int and node.args[2:] == (0,)


def _averaged(node: Node) -> tuple[Any, Any]:
    """Where a node is the mean over the last of three axes: the tensor with them, and the product that it is."""
    if node.target is aten.mean.dim and not node.kwargs and not (*node.args, False)[2]:
        source: Any = node.args[0]
        if source.target is aten.view.default and _rank(source) == 3 and node.args[1] in ([-1], [2]):
            product = source.args[0]
            if product.target is aten.addmm.default and len(source.users) == len(product.users) == 1:
                return source, product
    return None, None


def _is_by_number(node: Any) -> bool:
    """Whether the second argument is a number, and the first a tensor of the same type as the result."""
    plain = len(node.args) == 2 and isinstance(node.args[1], (int, float)) and not node.kwargs
    return plain and node.args[0].meta["val"].dtype == node.meta["val"].dtype


def _shape(node: Any) -> list[int | str]:
    """The sizes of a tensor; a variable one as its name, since a comparison would make it a constant."""
    return [one if isinstance(one, int) else str(one) for one in node.meta["val"].shape]


def _rank(node: Any) -> int:
    return len(getattr(node.meta["val"], "shape", ()))


def _axis(number: Any, rank: int) -> int:
    return int(number % rank)


def _columns(node: Node) -> tuple[Any, int, int]:
    """The tensor of which a node is some columns, with the first column and the end; (None, 0, 0): it is not."""
    source: Any = node.args[0] if node.args else None
    start: Any
    stop: Any
    if node.target is aten.slice.Tensor and len(node.args) == 4:
        axis, start, stop = node.args[1:]
    elif node.target is getitem and source.target is aten.split.Tensor and len(source.users) == 1:
        index: Any = node.args[1]
        source, size, axis = (*source.args, 0)[:3]
        start, stop = index * size, (index + 1) * size
    else:
        return None, 0, 0
    width = _shape(source)[-1]
    last = _axis(axis, _rank(source)) == _rank(source) - 1
    fits = last and all(isinstance(one, int) for one in (width, start, stop)) and 0 <= start < stop
    return (source, start, min(stop, width)) if fits else (None, 0, 0)
