"""The gradients of one phase: for one seed or for all of them, together or one after the other."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from rl_training.engine.phases import Batch, Groups, Metrics, Noise, Phase


def phase_gradients(
    phase: Phase, groups: Groups, batch: Batch, noise: Noise, seeds: int, looped: bool
) -> tuple[Any, Metrics]:
    """Gradients of the phase's groups and its metrics; with several seeds all of them have the seed axis."""

    def loss(trained: Groups, frozen: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        return phase.loss({**frozen, **trained}, batch, noise)

    trained = {group: groups[group] for group in phase.groups}
    frozen = {group: params for group, params in groups.items() if group not in trained}
    if seeds > 1 and not looped:
        grads, (_, metrics) = vmap(grad_and_value(loss, has_aux=True))(trained, frozen, batch, noise)
        return grads, metrics
    found = [_of_one_seed(loss, *entry((trained, frozen, batch, noise), seed)) for seed in range(seeds)]
    return found[0] if seeds == 1 else _stacked(found)


def _of_one_seed(loss: Any, trained: Groups, frozen: Groups, batch: Batch, noise: Noise) -> tuple[Any, Metrics]:
    """Without vmap, which costs about a quarter on a CPU, and in eager mode without a functional transform."""
    if torch.compiler.is_compiling():
        grads, (_, metrics) = grad_and_value(loss, has_aux=True)(trained, frozen, batch, noise)
        return grads, metrics
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


def _stacked(trees: list[Any]) -> Any:
    if isinstance(trees[0], Tensor):
        return torch.stack(trees)
    if isinstance(trees[0], dict):
        return {key: _stacked([tree[key] for tree in trees]) for key in trees[0]}
    return tuple(_stacked(list(values)) for values in zip(*trees, strict=True))
