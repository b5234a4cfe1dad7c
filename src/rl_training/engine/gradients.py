"""The gradients of one phase: for one seed, for all seeds by vmap, or for one seed after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from rl_training.engine.groups import Groups
from rl_training.engine.networks import Batch, Binding, LossPass
from rl_training.engine.phases import LossResult, Noise, Phase

# Gradients of the phase's groups, the result of its loss, and the buffers that its networks changed, by group.
Gradients = tuple[Groups, LossResult, Groups]
OneSeed = Callable[[Groups, Batch, Noise], Gradients]


def phase_gradients(phase: Phase, binding: Binding, groups: Groups, batch: Batch, noise: Noise) -> Gradients:
    """The gradients of one seed, without a seed axis: vmap would cost about a quarter on a CPU.

    Eager mode uses ordinary autograd, so that a loss can be debugged.
    """
    if torch.compiler.is_compiling():
        return _result(grad_and_value(_pure_loss(phase, binding), has_aux=True)(*_split(phase, groups), batch, noise))
    trained = {
        group: {name: tensor.detach().requires_grad_() for name, tensor in groups[group].items()}
        for group in phase.groups
    }
    current = loss_pass(phase, noise)
    with torch.enable_grad():
        batch = binding.batch_for(groups, batch)
        result = phase.loss(binding.networks_of({**groups, **trained}, current), batch, noise)
        flat = [leaf for params in trained.values() for leaf in params.values()]
        found = iter(torch.autograd.grad(result.loss, flat, allow_unused=True, materialize_grads=True))
    grads = {group: {name: next(found) for name in params} for group, params in trained.items()}
    return grads, LossResult(*map_tensors(result, Tensor.detach)), current.buffers


def stacked_gradients(phase: Phase, binding: Binding, groups: Groups, batch: Batch, noise: Noise) -> Gradients:
    """The gradients of all seeds at once; the first axis of every tensor is the seed."""
    every_seed = vmap(grad_and_value(_pure_loss(phase, binding), has_aux=True))
    return _result(every_seed(*_split(phase, groups), batch, noise))


def looped_gradients(one_seed: OneSeed, groups: list[Groups], batch: Batch, noise: Noise) -> Gradients:
    """The gradients of one seed after the other; the first axis of the results is the seed."""
    every = [one_seed(one, *entry((batch, noise), seed)) for seed, one in enumerate(groups)]
    grads, results, buffers = zip(*every, strict=True)
    return stacked(grads), LossResult(*stacked(results)), stacked(buffers)


def compiled_gradients(phase: Phase, binding: Binding, compiler: Callable[[Any], Any]) -> OneSeed:
    """`phase_gradients` as a program that is compiled once and called for every seed; all shapes must stay the same."""

    def of_one(params: dict[tuple[str, str], Tensor], batch: Batch, noise: Noise) -> tuple[Any, ...]:
        groups: Groups = {}
        for (group, name), tensor in params.items():
            groups.setdefault(group, {})[name] = tensor
        grads, result, buffers = phase_gradients(phase, binding, groups, batch, noise)
        return grads, tuple(result), buffers

    program = compiler(of_one)

    def call(groups: Groups, batch: Batch, noise: Noise) -> Gradients:
        params = {(group, name): tensor for group, tensors in groups.items() for name, tensor in tensors.items()}
        # A program identifies its inputs by their order.
        grads, result, buffers = program(params, dict(sorted(batch.items())), dict(sorted(noise.items())))
        return grads, LossResult(*result), buffers

    return call


def loss_pass(phase: Phase, noise: Noise) -> LossPass:
    """The pass of a phase's loss, with its share of dropout's random numbers."""
    prefix = dropout_name(phase.name, "")
    return LossPass(phase.groups, [numbers for name, numbers in noise.items() if name.startswith(prefix)])


def dropout_name(phase: str, number: object) -> str:
    """The name of the random numbers of a phase's dropout layers, in the order of their use."""
    return f"dropout/{phase}/{number}"


def _pure_loss(phase: Phase, binding: Binding) -> Callable[..., tuple[Tensor, dict[str, Any]]]:
    """The phase's loss in the form torch.func needs: trained parameters first, auxiliary outputs only tensors."""

    def loss(trained: Groups, frozen: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, dict[str, Any]]:
        groups, current = {**frozen, **trained}, loss_pass(phase, noise)
        result = phase.loss(binding.networks_of(groups, current), binding.batch_for(groups, batch), noise)
        rest = {key: value for key, value in result._asdict().items() if key != "loss" and value is not None}
        return result.loss, {**rest, "buffers": current.buffers}

    return loss


def _split(phase: Phase, groups: Groups) -> tuple[Groups, Groups]:
    """The groups that a phase trains, and the others."""
    trained = {group: groups[group] for group in phase.groups}
    return trained, {group: params for group, params in groups.items() if group not in trained}


def _result(found: Any) -> Gradients:
    """The gradients and the result of a loss, from what `grad_and_value` of a pure loss returns."""
    grads, (loss, rest) = found
    buffers = rest.pop("buffers")
    return grads, LossResult(loss, **rest), buffers


def map_tensors(tree: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply `function` to every tensor in nested tuples and dicts; None stays None."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_tensors(value, function) for key, value in tree.items()}
    return None if tree is None else tuple(map_tensors(value, function) for value in tree)


def entry(tree: Any, index: int) -> Any:
    """The entry `index` along the first axis of every tensor in nested tuples and dicts."""
    return map_tensors(tree, lambda tensor: tensor[index])


def stacked(trees: Any) -> Any:
    """The inverse of `entry`: nested tuples and dicts of one structure, stacked along a new first axis."""
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.stack(trees)
    if isinstance(first, dict):
        return {key: stacked([tree[key] for tree in trees]) for key in first}
    return None if first is None else tuple(stacked(list(values)) for values in zip(*trees, strict=True))
