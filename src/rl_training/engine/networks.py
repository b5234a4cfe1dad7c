"""Modules as functions of their parameters, and the view of all parameter groups that losses and policies use."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.engine.groups import Groups, Params
from rl_training.models.layers import Dropout
from rl_training.models.own import UNIFORMS

Output = TypeVar("Output")
View = TypeVar("View", bound="Networks")
Batch = dict[str, Tensor]
Prepare = Callable[[Groups, Batch], Batch]
TARGET_PREFIX = "target_"
BUFFERS = "buffers of "  # the prefix of a group's buffers among the groups


class Network:
    """A module whose parameters are an argument, so that a loss is a pure function."""

    def __init__(self, module: nn.Module) -> None:
        owners = list(module.named_modules())
        first_names = {id(parameter): name for name, parameter in module.named_parameters()}  # of tied ones, one name
        self.slots = [
            (owner._parameters, name, first_names[id(parameter)])
            for _, owner in owners
            for name, parameter in owner._parameters.items()
            if parameter is not None  # e.g. the bias of a layer without one
        ]
        self.dropouts = [_join(prefix, UNIFORMS) for prefix, owner in owners if isinstance(owner, Dropout)]
        # Parameters without a gradient are carried like buffers, which no optimizer changes.
        self.frozen = [name for name, parameter in module.named_parameters() if not parameter.requires_grad]
        self.buffers = [*(name for name, _ in module.named_buffers() if name not in self.dropouts), *self.frozen]
        # Layers whose parameters are projected after each step of the optimizer, with the names of those.
        self.projected = [
            (owner, {name: _join(prefix, name) for name, one in owner._parameters.items() if one is not None})
            for prefix, owner in owners
            if hasattr(owner, "projected")
        ]
        self.of_user = any(getattr(owner, "of_user", False) for _, owner in owners)
        # The parameters and buffers that the members of an ensemble share, by the start of their names.
        self.shared = tuple(f"{_join(prefix, owner.shared)}." for prefix, owner in owners if hasattr(owner, "shared"))
        # Where the modes differ (batch norm, dropout), a copy for each: whoever has the module may set its mode.
        self.module = copy.deepcopy(module).train() if self.has_modes else module
        self.inference = copy.deepcopy(module).eval() if self.has_modes else module

    @property
    def has_modes(self) -> bool:
        """Whether it may compute differently in training, or changes buffers."""
        return bool(self.buffers or self.dropouts or self.of_user)


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


class LossPass:
    """One evaluation of a loss: the groups it trains, the random numbers of dropout, and the buffers it changes.

    A network is in training mode in the phase that trains it, and in inference mode elsewhere.
    """

    def __init__(
        self,
        trained: Collection[str] = (),
        uniforms: Iterable[Tensor] = (),
        recorded: list[torch.Size] | None = None,
    ) -> None:
        self.trained, self.uniforms = trained, iter(uniforms)
        self.recorded = recorded  # a list: the shapes of dropout's random numbers are appended, none are used
        self.buffers: Groups = {}  # by group


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

    def with_params(self, params: Params) -> BoundNetwork[Output]:
        """The same network with other parameters."""
        return BoundNetwork(self.network, params)

    def members(self, index: int | Tensor) -> BoundNetwork[Output]:
        """Some members of a stacked ensemble: one by its index, or those at the indices in a tensor."""
        chosen = slice(index, index + 1) if isinstance(index, int) else index
        shared = self.network.shared
        return self.with_params({n: one if n.startswith(shared) else one[chosen] for n, one in self.params.items()})

    def detached(self) -> BoundNetwork[Output]:
        """The same network, used but not trained: without gradients for its parameters, in inference mode."""
        return self.inference().with_params({name: tensor.detach() for name, tensor in self.params.items()})

    def inference(self) -> BoundNetwork[Output]:
        """The same network in inference mode, also in the loss that trains it."""
        return self

    def training(self) -> BoundNetwork[Output]:
        """The same network in training mode; in a loss that does not train it, its running statistics stay."""
        return self


class ModalNetwork(BoundNetwork[Output]):
    """A bound network with buffers or dropout; its `params` include the buffers."""

    def __init__(self, network: Network, params: Params, group: str, loss_pass: LossPass) -> None:
        super().__init__(network, params)
        self.group, self.loss_pass = group, loss_pass

    def with_params(self, params: Params) -> BoundNetwork[Output]:
        return ModalNetwork(self.network, params, self.group, self.loss_pass)

    def inference(self) -> BoundNetwork[Output]:
        return ModalNetwork(self.network, self.params, self.group, LossPass())

    def training(self) -> BoundNetwork[Output]:
        current = self.loss_pass
        own = LossPass((self.group,), current.uniforms, current.recorded)
        return ModalNetwork(self.network, self.params, self.group, own)

    def __call__(self, *inputs: Any) -> Output:
        network, current = self.network, self.loss_pass
        if self.group not in current.trained:
            return functional_call(network.inference, self.params, inputs)  # type: ignore[no-any-return]
        values = dict(self.params)
        for name in network.buffers:  # copies: the pass changes them in place, and a loss is a pure function
            values[name] = current.buffers.get(self.group, self.params)[name].clone()
        if current.recorded is None:
            values |= {name: next(current.uniforms) for name in network.dropouts}
        output: Output = functional_call(network.module, values, inputs)
        if current.recorded is not None:
            layers: Any = dict(network.module.named_modules())
            current.recorded += [layers[name.removesuffix(UNIFORMS)[:-1]].recorded for name in network.dropouts]
        if network.buffers:
            current.buffers[self.group] = {name: values[name].detach() for name in network.buffers}
        return output


class Networks:
    """One seed's parameter groups: a network's group is callable, `nets.critic(obs, action)`; others are dicts.

    `nets.running` has the numbers that losses change for the next update.

    A subclass annotates the groups of its algorithm with their types; nothing else needs to be written.
    """

    running: Params

    def __init__(
        self, groups: Groups, networks: Mapping[str, Network], loss_pass: LossPass | None = None, prefix: str = ""
    ) -> None:
        self.groups, self.networks, self.prefix = groups, networks, prefix
        self.loss_pass = loss_pass or LossPass()

    if not TYPE_CHECKING:  # to the type checker, a group without an annotation is an error

        def __getattr__(self, name: str) -> Any:
            group = self.prefix + name
            if group not in self.groups and BUFFERS + group in self.groups:
                return self.groups[BUFFERS + group]
            if group not in self.groups:
                raise AttributeError(f"there is no parameter group {group!r}")
            found = self._bound(name, group)
            if not torch.compiler.is_compiling():
                self.__dict__[name] = found  # a view's groups stay the same
            return found

        def _bound(self, name: str, group: str) -> Any:
            network = self.networks.get(name)
            if network is None:
                return self.groups[group]
            if not network.has_modes:
                return BoundNetwork(network, self.groups[group])
            params = {**self.groups[group], **self.groups.get(BUFFERS + group, {})}
            return ModalNetwork(network, params, group, self.loss_pass)

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.groups

    @property
    def target(self: View) -> View:
        """The target networks, with the same modules: `nets.target.critic` has the parameters of `target_critic`."""
        return type(self)(self.groups, self.networks, self.loss_pass, TARGET_PREFIX)


class Binding:
    """Binds one seed's parameter groups to the networks, and prepares its batches, for losses and policies."""

    def __init__(self, view: type[Networks], modules: Mapping[str, nn.Module], prepare: Prepare | None = None) -> None:
        self.view, self.networks = view, {group: Network(module) for group, module in modules.items()}
        self.prepare = prepare  # for example, normalises the observations of a batch

    def networks_of(self, groups: Groups, loss_pass: LossPass | None = None) -> Any:
        """The view of one seed's groups; its type is that of the algorithm. Without a pass, in inference mode."""
        return self.view(groups, self.networks, loss_pass)

    def batch_for(self, groups: Groups, batch: Batch) -> Batch:
        """The batch as the networks receive it."""
        return batch if self.prepare is None else self.prepare(groups, batch)


def must_loop(module: nn.Module) -> bool:
    """Whether seeds run one after the other instead of stacked.

    With a seed axis a convolution would become a grouped one, which rounds differently and is no faster; some modules
    of users cannot be stacked.
    """
    parts = list(module.modules())
    return any(isinstance(part, nn.Conv2d) or not getattr(part, "vmaps", True) for part in parts)
