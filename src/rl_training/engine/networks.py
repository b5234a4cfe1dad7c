"""Modules as functions of their parameters, and the view of all parameter groups that losses and policies use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.engine.groups import Groups, Params

Output = TypeVar("Output")
View = TypeVar("View", bound="Networks")
Batch = dict[str, Tensor]
Prepare = Callable[[Groups, Batch], Batch]
TARGET_PREFIX = "target_"


class Network:
    """A module whose parameters are an argument, so that a loss is a pure function."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.slots = [
            (owner._parameters, name, f"{prefix}.{name}" if prefix else name)
            for prefix, owner in module.named_modules()
            for name, parameter in owner._parameters.items()
            if parameter is not None  # e.g. the bias of a layer without one
        ]


class BoundNetwork(Generic[Output]):
    """A module with the parameters of one group: `critic(obs, action)`."""

    def __init__(self, network: Network, params: Params) -> None:
        self.network, self.params = network, params

    def __call__(self, *inputs: Any) -> Output:
        module, params = self.network.module, self.params
        if torch.compiler.is_compiling():
            return functional_call(module, params, inputs)  # type: ignore[no-any-return]
        # functional_call without its checks, which cost more than a small network's forward pass.
        slots = self.network.slots
        before = [parameters[name] for parameters, name, _ in slots]
        for parameters, name, full_name in slots:
            parameters[name] = params[full_name]
        try:
            return module(*inputs)  # type: ignore[no-any-return]
        finally:
            for (parameters, name, _), parameter in zip(slots, before, strict=True):
                parameters[name] = parameter

    def members(self, index: int | Tensor) -> BoundNetwork[Output]:
        """Some members of a stacked ensemble: one by its index, or those at the indices in a tensor."""
        chosen = slice(index, index + 1) if isinstance(index, int) else index
        return BoundNetwork(self.network, {name: stacked[chosen] for name, stacked in self.params.items()})

    def detached(self) -> BoundNetwork[Output]:
        """The same network, without gradients for its parameters."""
        return BoundNetwork(self.network, {name: tensor.detach() for name, tensor in self.params.items()})


class Networks:
    """One seed's parameter groups: a network's group is callable, `nets.critic(obs, action)`; others are dicts.

    A subclass annotates the groups of its algorithm with their types; nothing else needs to be written.
    """

    def __init__(self, groups: Groups, networks: Mapping[str, Network], prefix: str = "") -> None:
        self.groups, self.networks, self.prefix = groups, networks, prefix

    if not TYPE_CHECKING:  # to the type checker, a group without an annotation is an error

        def __getattr__(self, name: str) -> Any:
            group = self.prefix + name
            if group not in self.groups:
                raise AttributeError(f"there is no parameter group {group!r}")
            network = self.networks.get(name)
            return self.groups[group] if network is None else BoundNetwork(network, self.groups[group])

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.groups

    @property
    def target(self: View) -> View:
        """The target networks, with the same modules: `nets.target.critic` has the parameters of `target_critic`."""
        return type(self)(self.groups, self.networks, TARGET_PREFIX)


class Binding:
    """Binds one seed's parameter groups to the networks, and prepares its batches, for losses and policies."""

    def __init__(self, view: type[Networks], modules: Mapping[str, nn.Module], prepare: Prepare | None = None) -> None:
        self.view, self.networks = view, {group: Network(module) for group, module in modules.items()}
        self.prepare = prepare  # for example, normalises the observations of a batch

    def networks_of(self, groups: Groups) -> Any:
        """The view of one seed's groups; its type is that of the algorithm."""
        return self.view(groups, self.networks)

    def batch_for(self, groups: Groups, batch: Batch) -> Batch:
        """The batch as the networks receive it."""
        return batch if self.prepare is None else self.prepare(groups, batch)


def has_convolutions(module: nn.Module) -> bool:
    return any(isinstance(part, nn.Conv2d) for part in module.modules())
