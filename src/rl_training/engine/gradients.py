"""Gradients of one seed's loss in eager mode, and slices of nested tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.engine.phases import Batch, Groups, Metrics, Noise


def plain_gradients(loss: Any, trained: Groups, frozen: Groups, batch: Batch, noise: Noise) -> tuple[Any, Metrics]:
    """What grad_and_value does, without its overhead."""
    leaves = {g: {k: v.detach().requires_grad_() for k, v in params.items()} for g, params in trained.items()}
    with torch.enable_grad():
        value, metrics = loss(leaves, frozen, batch, noise)
        flat = [leaf for params in leaves.values() for leaf in params.values()]
        found = iter(torch.autograd.grad(value, flat, allow_unused=True, materialize_grads=True))
    grads = {group: {name: next(found) for name in params} for group, params in leaves.items()}
    return grads, {name: metric.detach() for name, metric in metrics.items()}


def entry(tree: Any, index: int) -> Any:
    """The entry `index` of every tensor in nested tuples and dicts."""
    if isinstance(tree, Tensor):
        return tree[index]
    if isinstance(tree, dict):
        return {key: entry(value, index) for key, value in tree.items()}
    return tuple(entry(value, index) for value in tree)
