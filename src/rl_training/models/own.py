"""The user's own modules as networks of the library: checked, and with the run's random streams in dropout."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.overrides import TorchFunctionMode

from rl_training.config.objects import object_name
from rl_training.core.checks import UserError, one_line
from rl_training.core.specs import ArraySpec
from rl_training.models.layers import BatchNorm, Dropout
from rl_training.tensors.observations import rows_of_zeros, split

OWN = "own_module"
UNIFORMS = "uniforms"  # the buffer of a `Dropout`
OUR_DROPOUT = "nn.Dropout layers draw from the run's own streams"
# Functions that draw from torch's own generator, whose state is in no checkpoint.
RANDOM_FUNCTIONS = {
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "feature_dropout",
    "rrelu", "rand", "randn", "randint", "rand_like", "randn_like", "randint_like", "bernoulli", "multinomial",
    "normal", "normal_", "uniform_", "bernoulli_", "gumbel_softmax", "randperm",
}  # fmt: skip


class OwnNetworks(nn.Module):
    """`members` modules made by the user's `make(inputs, outputs)`: (batch, inputs) -> (members, batch, outputs).

    Each is initialised by itself. Parameters and buffers are stacked and evaluated by vmap.
    """

    of_user = True

    def __init__(self, members: int, inputs: int, outputs: int, make: Callable[..., Any], name: str) -> None:
        super().__init__()
        made = [own_module(make, name, inputs, outputs) for _ in range(members)]
        self.members = members
        found = probe(made[0], torch.zeros(2, inputs, device="cpu"), name)
        if found.shape != (2, outputs):
            gives = tuple(found.shape)
            raise UserError(f"{name}: {object_name(make)} must return (batch, {outputs}), got {gives} for a batch of 2")
        self._module = [made[0]]  # in a list, so that its parameters are not this module's too
        tensors = [_tensors(one) for one in made]
        shapes = [{key: one.shape for key, one in each.items()} for each in tensors]
        if any(one != shapes[0] for one in shapes):
            raise UserError(f"{name}: {object_name(make)} must make parameters of the same shapes at every call")
        buffers = {key for key, _ in made[0].named_buffers()}
        self._names = {key: key.replace(".", "/") for key in tensors[0]}  # of attributes, which must not have dots
        for key, own in self._names.items():
            stacked = torch.stack([one[key].detach() for one in tensors])
            if key in buffers:
                self.register_buffer(own, stacked)
            else:
                self.register_parameter(own, nn.Parameter(stacked, tensors[0][key].requires_grad))
        self.vmaps = supports_vmap(made[0], torch.zeros(2, inputs, device="cpu"))
        self._dropouts = {key: one for key, one in made[0].named_modules() if isinstance(one, Dropout)}
        self.dropouts = nn.ModuleDict({key.replace(".", "/"): Dropout(0.0) for key in self._dropouts})

    def train(self, mode: bool = True) -> OwnNetworks:
        super().train(mode)
        self._module[0].train(mode)
        return self

    @contextmanager
    def module_shown(self) -> Iterator[None]:
        """With the user's module among the submodules, as `OWN`, so that a tracer knows the names of its layers."""
        self._modules[OWN] = self._module[0]
        try:
            yield
        finally:
            del self._modules[OWN]

    def forward(self, x: Tensor) -> Tensor:
        module = self._module[0]
        values = {key: getattr(self, own) for key, own in self._names.items()}
        if self.training and not Dropout.recording:
            values |= {f"{key}.{UNIFORMS}": self.dropouts[key.replace(".", "/")].uniforms for key in self._dropouts}

        def one(tensors: dict[str, Tensor]) -> Tensor:
            return functional_call(module, tensors, (x,))  # type: ignore[no-any-return]

        if not values:
            output = one(values).expand(self.members, -1, -1)
        elif self.vmaps:
            output = vmap(one)(values)
        else:
            members = range(len(next(iter(values.values()))))
            output = torch.stack([one({key: tensor[member] for key, tensor in values.items()}) for member in members])
        if Dropout.recording:
            for key, one in self._dropouts.items():
                holder: Any = self.dropouts[key.replace(".", "/")]
                holder.recorded = torch.Size((len(output), *one.recorded))
        return output


def layers_of(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of a model, with those of the user's modules, which are not among its submodules."""
    for one in model.modules():
        yield one
        if isinstance(one, OwnNetworks):
            yield from one._module[0].modules()


class OwnFeatures(nn.Module):
    """A module made by the user's `make(observation)`: observations -> (batch, features).

    It receives vectors as they are, images as float32 in [0, 1], and Dict or Tuple observations as a dict by name.
    """

    of_user = True

    def __init__(self, observation: ArraySpec, make: Callable[..., Any], name: str = "network.features") -> None:
        super().__init__()
        self.observation, self.module = observation, own_module(make, name, observation)
        example = self._inputs(split(observation, rows_of_zeros(observation, (2,))))
        found = probe(self.module, example, name)
        if found.dim() != 2 or len(found) != 2:
            gives = tuple(found.shape)
            raise UserError(f"{name}: {object_name(make)} must return (batch, features), got {gives} for a batch of 2")
        self.features = found.shape[1]
        self.vmaps = supports_vmap(self.module, example)

    def _inputs(self, obs: Any) -> Any:
        spec = self.observation
        if spec.parts:
            return spec.unpack({name: _scaled(one) if name in spec.images else one for name, one in obs.items()})
        obs = _scaled(obs) if spec.images else obs
        return spec.unpack(obs) if spec.has_names else obs

    def forward(self, obs: Any) -> Tensor:
        return self.module(self._inputs(obs))  # type: ignore[no-any-return]


def _scaled(pixels: Tensor) -> Tensor:
    return pixels.float() / 255


def own_module(make: Callable[..., Any], name: str, *arguments: Any) -> nn.Module:
    """The module that a user's class or function makes, with our batch norm and dropout in place of torch's."""
    if isinstance(make, nn.Module):
        what = f"a class or function that makes a module, got an instance of {type(make).__name__}"
        raise UserError(f"{name} must be {what}: every seed and member has its own")
    with torch.device("cpu"):  # real tensors, also where the sizes of networks are found with meta tensors
        try:
            module = make(*arguments)
        except UserError:
            raise
        except Exception as error:
            call = f"{object_name(make)}({', '.join(str(one) for one in arguments)})"
            raise UserError(f"{name}: {call} raised {type(error).__name__}: {one_line(error)}") from error
        if not isinstance(module, nn.Module):
            raise UserError(f"{name}: {object_name(make)} must return a torch.nn.Module, got {type(module).__name__}")
        for key, one in module.named_parameters():
            if isinstance(one, nn.parameter.UninitializedParameter):
                raise UserError(f"{name}: parameter {key} has no size yet; lazy modules are not supported")
            if one.dtype != torch.float32:
                raise UserError(f"{name}: parameter {key} must be float32, got {one.dtype}")
        holder = nn.ModuleList([module])  # so that the module itself can be replaced
        for owner in list(holder.modules()):
            for key, child in owner.named_children():
                setattr(owner, key, _replaced(child, name))
        return holder[0]


def _replaced(module: nn.Module, name: str) -> nn.Module:
    """Our layer in place of torch's batch norm or dropout, which do not work with stacked seeds or our streams."""
    if type(module) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        if module.momentum is None:
            raise UserError(f"{name}: {type(module).__name__} must have a momentum, got None")
        return BatchNorm(module)  # type: ignore[arg-type]
    if type(module) is nn.Dropout:
        return Dropout(module.p)
    if isinstance(module, (nn.modules.dropout._DropoutNd, nn.RReLU)):
        raise UserError(f"{name}: {type(module).__name__} is not supported; nn.Dropout is")
    return module


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of a module by name, without those of our dropout."""
    drawn = {f"{key}.{UNIFORMS}" for key, one in module.named_modules() if isinstance(one, Dropout)}
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {name: tensor for name, tensor in named.items() if name not in drawn}


def supports_vmap(module: nn.Module, inputs: Any) -> bool:
    """Whether the module can be evaluated for stacked parameters; one that branches on values cannot."""
    tried = copy.deepcopy(module).train()
    values = {name: one.detach().clone().unsqueeze(0) for name, one in _tensors(tried).items()}
    if not values:
        return True
    try:
        with torch.no_grad():
            vmap(lambda tensors: functional_call(tried, tensors, (inputs,)))(values)
    except Exception:  # any error: then it is evaluated member by member and seed by seed
        return False
    return True


class _RejectRandom(TorchFunctionMode):
    """Rejects functions that draw from torch's own generator, by name: `probe` finds the others."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        called = getattr(func, "__name__", "")
        if called in RANDOM_FUNCTIONS:
            raise UserError(
                f"{self.name}: its forward pass calls {called}, whose random numbers a resume could not repeat; "
                f"{OUR_DROPOUT}"
            )
        return func(*args, **(kwargs or {}))


def probe(module: nn.Module, inputs: Any, name: str) -> Tensor:
    """The output of a copy of the user's module in training; rejects modules that could not be resumed exactly."""
    tried = copy.deepcopy(module).train()
    before, uses = dict(tried.named_buffers()), Counter[str]()
    for key, layer in tried.named_modules():
        if isinstance(layer, Dropout):
            layer.register_forward_hook(lambda *_, key=key: uses.update([key]))
    generator = torch.get_rng_state()
    try:
        with _RejectRandom(name), torch.no_grad(), torch.device("cpu"):
            found = tried(inputs)
    except UserError:
        raise
    except Exception as error:
        shape = tuple(inputs.shape) if isinstance(inputs, Tensor) else {k: tuple(v.shape) for k, v in inputs.items()}
        raise UserError(
            f"{name}: {type(module).__name__} raised {type(error).__name__} for inputs of {shape}: {one_line(error)}"
        ) from error
    if not torch.equal(torch.get_rng_state(), generator):
        what = f"{type(module).__name__} draws random numbers in its forward pass (a dropout= argument of a layer?)"
        raise UserError(f"{name}: {what}, which a resume could not repeat; {OUR_DROPOUT}")
    for key, count in uses.items():
        if count > 1:
            raise UserError(f"{name}: {key} is used {count} times in a forward pass; each use needs its own nn.Dropout")
    for key, buffer in tried.named_buffers():
        if buffer is not before[key]:
            raise UserError(f"{name}: buffer {key} must be changed in place (copy_, add_), not assigned")
    if not isinstance(found, Tensor):
        raise UserError(f"{name}: {type(module).__name__} must return one tensor, got {type(found).__name__}")
    return found
