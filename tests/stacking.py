"""Functions and modules for stacked seeds, compared bit by bit with each seed alone, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from rl_training.engine.gradients import map_tensors

Function = Callable[..., Any]


def leaves(tree: Any) -> list[Tensor]:
    """The tensors of nested tuples and dicts."""
    if isinstance(tree, Tensor):
        return [tree]
    values = tree.values() if isinstance(tree, dict) else tree
    return [leaf for one in values for leaf in leaves(one)]


def assert_same_for_stacked_seeds(function: Function, *inputs: Any) -> None:
    """`inputs` have the seed as their first axis. Compares the results, and the gradients by the first input."""

    def loss(first: Any, *rest: Any) -> Tensor:
        found = [leaf for leaf in leaves(function(first, *rest)) if leaf.is_floating_point()]
        return torch.stack([(leaf * leaf.detach().cos()).sum() for leaf in found]).sum()

    seeds = len(leaves(inputs)[0])
    for one in (function, grad(loss)):
        together = leaves(vmap(one)(*inputs))
        for seed in range(seeds):
            alone = leaves(one(*map_tensors(inputs, lambda tensor, seed=seed: tensor[seed].clone())))
            assert [torch.equal(mine, every[seed]) for mine, every in zip(alone, together, strict=True)] == [
                True for _ in alone
            ]


def stacked_parameters(modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    """The parameters of modules of the same shape, one for each seed."""
    every = [dict(module.named_parameters()) for module in modules]
    return {name: torch.stack([one[name].detach() for one in every]) for name in every[0]}


def as_function(module: nn.Module) -> Function:
    """The module with its parameters as the first argument."""
    return lambda params, *inputs: functional_call(module, params, inputs)


def compiled(function: Function, *inputs: Any) -> Any:
    """The result of the function compiled without graph breaks."""
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")(*inputs)
