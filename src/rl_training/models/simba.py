"""SimBa's network: Lee et al., "SimBa: Simplicity Bias for Scaling Up Parameters in Deep Reinforcement Learning", 2025.

The running statistics of observations, its first part, are the learner's (`normalize_observations`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from rl_training.config.network import SIMBA_EXPANSION, HiddenLayers
from rl_training.models.layers import Activation, StackedLayerNorm, StackedLinear, check_vectors, matrices


class SimbaBlock(nn.Module):
    """x + a perceptron of the normalised x, whose hidden layer is four times as wide."""

    def __init__(self, members: int, size: int, activation: str) -> None:
        super().__init__()
        self.norm = StackedLayerNorm(members, size)
        self.up = StackedLinear(members, size, SIMBA_EXPANSION * size)
        self.activation = Activation(activation)
        self.down = StackedLinear(members, SIMBA_EXPANSION * size, size)
        for layer in (self.up, self.down):  # He et al. 2015
            nn.init.normal_(layer.weight, std=math.sqrt(2 / layer.weight.shape[1]))
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.activation(self.up(self.norm(x))))  # type: ignore[no-any-return]


class Simba(nn.Module):
    """`members` networks (batch, n_in) -> (members, batch, n_out): an embedding, residual blocks, a layer norm.

    `hidden_sizes` has the width of each block, all equal.
    """

    def __init__(self, members: int, n_in: int, hidden_sizes: Sequence[int], n_out: int) -> None:
        super().__init__()
        layers, size = HiddenLayers.of(hidden_sizes), hidden_sizes[0]
        self.embedding = StackedLinear(members, n_in, size)
        self.blocks = nn.ModuleList(SimbaBlock(members, size, layers.options.activation) for _ in layers)
        self.norm = StackedLayerNorm(members, size)
        self.output = StackedLinear(members, size, n_out)
        for layer in (self.embedding, self.output):
            for weight in matrices(layer):
                nn.init.orthogonal_(weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_vectors(x)
        hidden = self.embedding(x.unsqueeze(0))
        for block in self.blocks:
            hidden = block(hidden)
        return self.output(self.norm(hidden))  # type: ignore[no-any-return]
