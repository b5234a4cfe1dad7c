"""The tensors of models, by parameter group and seed, as the engine takes them; and a model on the engine's tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from rl_training.engine.groups import Groups, Params
from rl_training.engine.networks import BUFFERS, Network
from rl_training.engine.targets import TargetUpdate

Modules = Callable[[nn.Module], dict[str, nn.Module]]  # the networks of a model by group


def parameters_of(
    models: Sequence[nn.Module], modules: Modules, targets: TargetUpdate | None
) -> dict[str, list[Params]]:
    """For each network and its target, the parameters of every seed."""
    found: dict[str, list[Params]] = {
        group: [
            {name: one for name, one in modules(model)[group].named_parameters() if one.requires_grad}
            for model in models
        ]
        for group in modules(models[0])
    }
    return {**found, **_copies(found, targets)}


def buffers_of(
    models: Sequence[nn.Module], modules: Modules, networks: Mapping[str, Network], targets: TargetUpdate | None
) -> dict[str, list[Params]]:
    """For each network with buffers or frozen parameters and its target, those of every seed."""
    found = {}
    for group, network in networks.items():
        if network.buffers:
            members = [modules(model)[group] for model in models]
            named = [{**dict(one.named_buffers()), **dict(one.named_parameters())} for one in members]
            found[group] = [{name: one[name] for name in network.buffers} for one in named]
    return {**found, **_copies(found, targets)}


def _copies(found: Mapping[str, list[Params]], targets: TargetUpdate | None) -> dict[str, list[Params]]:
    """The targets' tensors, which start equal to those of the groups they follow."""
    followed = targets.groups if targets is not None else {}
    return {target: found[group] for target, group in followed.items() if group in found}


def tie(modules: Mapping[str, nn.Module], groups: Groups) -> None:
    """Make a model's networks share the memory of one seed's groups, so that the model is always up to date."""
    for group, module in modules.items():
        own = {**groups[group], **groups.get(BUFFERS + group, {})}
        parameters = dict(module.named_parameters())
        for name, tensor in own.items():
            if name in parameters:
                parameters[name].data = tensor
            else:
                owner, _, own_name = name.rpartition(".")
                module.get_submodule(owner)._buffers[own_name] = tensor
