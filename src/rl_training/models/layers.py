"""Layers that networks are made of: dense, normalised, with dropout. `members` of an ensemble are one stacked tensor.

Each computes the same bits for one seed and for stacked seeds on a CPU, whatever the batch around a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.config.network import HiddenLayers, LayerSettings
from rl_training.core.checks import UserError

NORM_EPS = 1e-12


def inferring() -> bool:
    """Whether no gradients are wanted and operations run as they are called: neither traced nor compiled."""
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def square_root(values: Tensor) -> Tensor:
    """The square root, by operations that round the same on every processor.

    On a CPU torch.sqrt uses MKL, which refines the processor's approximation of 1 / sqrt(x): on another model a fifth
    of the results differ in the last bit.
    """
    return values.rsqrt().reciprocal_() if values.device.type == "cpu" else values.sqrt()


class StackedLinear(nn.Module):
    """`members` dense layers as one batched product: (members or 1, batch, n_in) -> (members, batch, n_out).

    Written as `x @ W + b` and never as nn.Linear, whose kernel rounds differently with and without a seed axis.
    """

    dtype = torch.float32  # of the product; inputs, parameters and outputs are float32
    is_product = True  # without other arguments, it computes `stacked_product`

    def __init__(self, members: int, n_in: int, n_out: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(n_in)
        self.weight = nn.Parameter(torch.empty(members, n_in, n_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, n_out).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:
        return stacked_product(x, self.weight, self.bias, self.dtype)


def check_vectors(value: Tensor) -> None:
    """Reject images and other arrays with more axes than a batch of vectors."""
    if value.ndim > 2:
        raise UserError(f"an MLP takes vectors (batch, features), got images or other arrays of {tuple(value.shape)}")


def stacked_product(x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """`x @ weight + bias`, with the same rounding for one seed and for stacked seeds; the product in `dtype`."""
    if dtype != torch.float32:
        return torch.matmul(x.to(dtype), weight.to(dtype)).float() + bias
    if weight.shape[-1] == 1 and weight.device.type == "cpu":
        if torch.compiler.is_dynamo_compiling():  # and not exporting: a sum is fused with what is around it
            return (x * weight.transpose(-1, -2)).sum(-1, keepdim=True) + bias
        # On a CPU a product with one column uses another kernel, which rounds differently when seeds are stacked.
        return (torch.matmul(x, weight.expand(-1, -1, 2)) + bias)[..., :1]
    if x.dim() == 3 and x.shape[0] == weight.shape[0]:
        return torch.bmm(x, weight) + bias  # what matmul calls, without its dispatch
    return torch.matmul(x, weight) + bias


def infer_dense(layers: nn.ModuleList, stages: nn.ModuleList | None, hidden_layers: int, x: Tensor) -> Tensor:
    """Dense layers where no gradient is wanted, with the bits of their forward passes.

    In place and without the calls of modules, which take longer than the products of one row. A stage follows each of
    the first `hidden_layers`; None: a ReLU.
    """
    following: Any = stages or ()
    for number, (layer, stage) in enumerate(zip_longest(layers, following)):
        x = _infer(layer, x)
        if number < hidden_layers:
            x = x.relu_() if stage is None else stage.infer(x)
    return x


def _infer(layer: nn.Module, x: Tensor) -> Tensor:
    """One dense layer, without the call of its module if that computes nothing else."""
    parameters: dict[str, Any] = layer._parameters
    if not layer.is_product or layer.dtype != torch.float32 or layer._forward_hooks or layer._forward_pre_hooks:
        return layer(x)  # type: ignore[no-any-return]
    weight, bias = parameters["weight"], parameters["bias"]
    if x.shape[0] == weight.shape[0] and weight.shape[-1] > 1:
        return torch.bmm(x, weight).add_(bias)
    return stacked_product(x, weight, bias)


class SpectralLinear(StackedLinear):
    """Dense layers whose weights are divided by their largest singular value (Miyato et al. 2018).

    One step of the power method per forward pass in training; its vector is a buffer.
    """

    is_product = False
    left: Tensor

    def __init__(self, members: int, n_in: int, n_out: int) -> None:
        super().__init__(members, n_in, n_out)
        self.register_buffer("left", _unit(torch.randn(members, 1, n_out)))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight.detach()
        right = _unit(torch.matmul(self.left, weight.transpose(-1, -2)))
        left = _unit(torch.matmul(right, weight))
        if self.training:
            self.left.copy_(left)
        largest = (torch.matmul(right, self.weight) * left).sum(-1, keepdim=True)
        return stacked_product(x, self.weight / largest, self.bias, self.dtype)


def _unit(rows: Tensor) -> Tensor:
    """Rows scaled to length 1."""
    return rows / square_root(rows.square().sum(-1, keepdim=True) + NORM_EPS)


class StackedLayerNorm(nn.Module):
    """Layer normalisation of (members, batch, n) with `members` scales and shifts (Ba et al. 2016)."""

    def __init__(self, members: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.ones(members, 1, size))
        self.bias = nn.Parameter(torch.zeros(members, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.size,)) * self.weight + self.bias


class BatchNorm(nn.Module):
    """Batch normalisation of (batch, channels, ...) that works with stacked seeds (Ioffe and Szegedy 2015).

    Parameters, buffers and results are those of torch.nn.BatchNorm1d and its siblings.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, like: nn.modules.batchnorm._BatchNorm) -> None:
        super().__init__()
        self.eps, self.weight, self.bias = like.eps, like.weight, like.bias
        self.momentum = float(like.momentum or 0.0)
        for name, buffer in like.named_buffers():
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> Tensor:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        if self.training or "running_mean" not in self._buffers:
            mean, var = x.mean(axes), x.var(axes, correction=0)
        else:
            mean, var = self.running_mean, self.running_var
        if self.training and "running_mean" in self._buffers:
            rows = x.numel() // x.shape[1]
            unbiased = var.detach() * (rows / max(rows - 1, 1))
            # Not by lerp_, which vmap would run one seed at a time.
            self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean.detach())
            self.running_var.mul_(1 - self.momentum).add_(self.momentum * unbiased)
            self.num_batches_tracked.add_(1)
        shape = (-1, *(1,) * (x.dim() - 2))
        normal = (x - mean.view(shape)) * (var + self.eps).rsqrt().view(shape)
        return normal if self.weight is None else normal * self.weight.view(shape) + self.bias.view(shape)


class Dropout(nn.Module):
    """Dropout whose random numbers are an input: the engine puts them into `uniforms` for one training pass.

    `recorded` is the shape of the numbers that the newest pass needed, noted while `recording`.
    """

    uniforms: Tensor
    recording = False

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability, self.recorded = probability, torch.Size()
        self.register_buffer("uniforms", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.probability:
            return x
        if Dropout.recording:
            self.recorded = x.shape
        return torch.where(self.uniforms < self.probability, 0.0, x / (1 - self.probability))


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772  # Klambauer et al. 2017
# Activations whose kernels on a CPU round by the position of a number in the array, so that stacked seeds would
# differ: the same functions by others that do not.
EXACT_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Sigmoid": lambda x: F.logsigmoid(x).exp(),
    "SiLU": lambda x: x * F.logsigmoid(x).exp(),
    "Softplus": lambda x: -F.logsigmoid(-x),
    "Mish": lambda x: x * (-F.logsigmoid(-x)).tanh(),
    "ELU": lambda x: torch.where(x > 0, x, x.clamp(max=0).exp() - 1),
    "CELU": lambda x: torch.where(x > 0, x, x.clamp(max=0).exp() - 1),
    "SELU": lambda x: SELU_SCALE * torch.where(x > 0, x, SELU_ALPHA * (x.clamp(max=0).exp() - 1)),
}


class Activation(nn.Module):
    """An activation by the name of its class in torch.nn."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.function = EXACT_ACTIVATIONS.get(name) or getattr(nn, name)()

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@contextmanager
def recording_dropout() -> Iterator[None]:
    """Dropout layers note the shapes of the random numbers they need."""
    Dropout.recording = True
    try:
        yield
    finally:
        Dropout.recording = False


class HiddenStage(nn.Module):
    """What follows a dense layer: dropout, normalisation and activation, each if wanted."""

    def __init__(self, members: int, size: int, options: LayerSettings) -> None:
        super().__init__()
        self.dropout = Dropout(options.dropout) if options.dropout else None
        self.norm = StackedLayerNorm(members, size) if options.layer_norm else None
        self.activation = Activation(options.activation)
        alone = self.dropout is None and self.norm is None
        self.in_place = {"ReLU": torch.relu_, "Tanh": torch.tanh_}.get(options.activation) if alone else None

    def infer(self, x: Tensor) -> Tensor:
        """`forward` where no gradient is wanted; `x` may be changed."""
        if self.in_place is None or self._forward_hooks or self._forward_pre_hooks:
            return self(x)  # type: ignore[no-any-return]
        return self.in_place(x)

    def forward(self, x: Tensor) -> Tensor:
        if self.dropout is not None:
            x = self.dropout(x)
        if self.norm is not None:
            x = self.norm(x)
        return self.activation(x)  # type: ignore[no-any-return]


def hidden_stages(members: int, layers: HiddenLayers) -> nn.ModuleList | None:
    """The stage after each hidden layer; None: only a ReLU, which is called without the cost of a module."""
    if layers.options.only_relu:
        return None
    return nn.ModuleList(HiddenStage(members, size, layers.options) for size in layers)


def hidden_linear(members: int, n_in: int, n_out: int, layers: HiddenLayers) -> StackedLinear:
    """The dense layer before a `HiddenStage`."""
    return (SpectralLinear if layers.options.spectral_norm else StackedLinear)(members, n_in, n_out)


def initialize_(model: nn.Module, weights: str, activation: str) -> None:
    """Give dense layers and convolutions the initial weights of this name in torch.nn.init, and zero biases."""
    known: dict[str, Any] = {"LeakyReLU": "leaky_relu", "Tanh": "tanh", "SELU": "selu", "Sigmoid": "sigmoid"}
    gain = nn.init.calculate_gain(known.get(activation, "relu"))
    for layer in own_layers(model):
        if isinstance(layer, (StackedLinear, nn.Conv2d)):
            for weight in matrices(layer):
                if weights == "orthogonal":
                    nn.init.orthogonal_(weight, gain)
                elif weights == "xavier_uniform":
                    nn.init.xavier_uniform_(weight, gain)
                else:
                    bound = gain * math.sqrt(3 / weight[0].numel())
                    nn.init.uniform_(weight, -bound, bound)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def set_precision_(model: nn.Module, precision: str) -> None:
    """Compute the products of dense layers and the convolutions of a model in this dtype, not those of the user."""
    for layer in own_layers(model):
        if isinstance(getattr(layer, "dtype", None), torch.dtype):
            layer.dtype = getattr(torch, precision)


def own_layers(model: nn.Module) -> Iterator[nn.Module]:
    """The layers of a model, without those in modules of the user."""
    yield model
    for child in model.children():
        if not getattr(child, "of_user", False):
            yield from own_layers(child)


def matrices(layer: StackedLinear | nn.Conv2d) -> Sequence[Tensor]:
    """The weights of a layer as (outputs, inputs, ...): of each member, or of the convolution."""
    if isinstance(layer, nn.Conv2d):
        return [layer.weight]
    return [weight.T for weight in layer.weight.data]
