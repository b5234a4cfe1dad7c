"""CrossQ's networks: SAC's, with batch renormalisation of the inputs and after every hidden layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from rl_training.models.features import ObsDim
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.normalization import BatchRenorm
from rl_training.models.parts import StackedMLP, network


class RenormalizedMLP(StackedMLP):
    """`members` perceptrons with batch renormalisation before each dense layer."""

    is_dense = False

    def __init__(
        self, members: int, n_in: int, hidden_sizes: Sequence[int], n_out: int, *, momentum: float, warmup: int
    ) -> None:
        super().__init__(members, n_in, hidden_sizes, n_out)
        norms = (BatchRenorm(members, size, momentum, warmup=warmup) for size in (n_in, *hidden_sizes))
        self.norms = nn.ModuleList(norms)

    def hidden(self, number: int, x: Tensor) -> Tensor:
        return super().hidden(number, self.norms[number](x))

    def output(self, x: Tensor) -> Tensor:
        return super().output(self.norms[-1](x))


class MLPCrossQModel(MLPSACModel):
    """SAC's networks with batch renormalisation, whose first `renorm_warmup` passes are plain batch normalisation."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        critic_hidden_sizes: Sequence[int] | None = None,
        batch_norm_momentum: float = 0.01,
        renorm_warmup: int = 100_000,
    ) -> None:
        perceptron = partial(RenormalizedMLP, momentum=batch_norm_momentum, warmup=renorm_warmup)
        make = partial(network, perceptron=perceptron)
        super().__init__(obs_dim, action_dim, hidden_sizes, num_critics, critic_hidden_sizes, make)
