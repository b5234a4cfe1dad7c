"""Noisy networks: Fortunato et al., "Noisy Networks for Exploration", 2018, with factorised Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.config.network import HiddenLayers
from rl_training.core.checks import require
from rl_training.models.layers import (
    StackedLinear,
    hidden_linear,
    hidden_stages,
    infer_dense,
    inferring,
    square_root,
    stacked_product,
)

SIGMA = 0.5  # the paper's sigma_0


class NoisyLinear(StackedLinear):
    """A dense layer with noisy weights: n_in + n_out standard normal numbers perturb their means.

    `noise` is one such vector for all rows or one for each row; None: the mean weights.
    """

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__(1, n_in, n_out)
        self.noise_size = n_in + n_out
        self.weight_sigma = nn.Parameter(torch.full_like(self.weight, SIGMA / math.sqrt(n_in)))
        self.bias_sigma = nn.Parameter(torch.full_like(self.bias, SIGMA / math.sqrt(n_in)))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        if noise is None:
            return super().forward(x)
        scaled, n_in = noise.sign() * square_root(noise.abs()), self.weight.shape[-2]
        # x (W + S * e_in e_out') = x W + ((x * e_in) S) * e_out, without a weight matrix for each row.
        perturbation = stacked_product(x * scaled[..., :n_in], self.weight_sigma, self.bias_sigma)
        return super().forward(x) + perturbation * scaled[..., n_in:]


class DenseLayers(nn.Module):
    """Dense layers, the first `plain` without noise: (batch, n_in) -> (batch, n_out).

    `hidden` says what follows each layer; nothing follows the last one unless it `ends_hidden` itself.
    """

    def __init__(self, sizes: Sequence[int], plain: int, hidden: Sequence[int] = (), ends_hidden: bool = False) -> None:
        super().__init__()
        inner = HiddenLayers.of(hidden).resized(sizes[1:] if ends_hidden else sizes[1:-1])
        rejected = inner.options.spectral_norm and plain < len(sizes) - 1
        require(not rejected, "network.spectral_norm", "false for noisy layers")
        self.layers = nn.ModuleList(
            NoisyLinear(a, b)
            if number >= plain
            else hidden_linear(1, a, b, inner)
            if number < len(inner)
            else StackedLinear(1, a, b)
            for number, (a, b) in enumerate(pairwise(sizes))
        )
        self.stages, self.hidden_layers = hidden_stages(1, inner), len(inner)
        self.noise_size = sum(layer.noise_size for layer in self.layers if isinstance(layer, NoisyLinear))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:
        hidden, used = x.unsqueeze(0), 0
        if noise is None and inferring():
            return infer_dense(self.layers, self.stages, self.hidden_layers, hidden).squeeze(0)
        for number, layer in enumerate(self.layers):
            if isinstance(layer, NoisyLinear) and noise is not None:
                hidden = layer(hidden, noise[..., used : used + layer.noise_size])
                used += layer.noise_size
            else:
                hidden = layer(hidden)
            if number < self.hidden_layers:
                hidden = F.relu(hidden) if self.stages is None else self.stages[number](hidden)
        return hidden.squeeze(0)
