"""FlashSAC's networks: residual blocks with batch normalisation, whose parameters keep fixed norms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from rl_training.config.network import HiddenLayers, LayerSettings
from rl_training.core.checks import require
from rl_training.models.features import ObsDim, batch_of, on_features
from rl_training.models.layers import HiddenStage
from rl_training.models.mlp_sac import GaussianPolicyModel
from rl_training.models.normalization import UnitBatchNorm, UnitLinear, UnitRMSNorm
from rl_training.models.parts import QuantileCriticEnsemble, as_batch, network

EXPANSION = 4  # a block is h to 4h to h


class UnitBlock(nn.Module):
    """x + f(x): two dense layers, each with batch normalisation and an activation."""

    def __init__(self, members: int, size: int, options: LayerSettings, momentum: float) -> None:
        super().__init__()
        sizes = (EXPANSION * size, size)
        self.layers = nn.ModuleList(
            UnitLinear(members, n_in, n_out) for n_in, n_out in zip((size, sizes[0]), sizes, strict=True)
        )
        self.norms = nn.ModuleList(UnitBatchNorm(members, n_out, momentum) for n_out in sizes)
        self.stages = nn.ModuleList(HiddenStage(members, n_out, options) for n_out in sizes)

    def forward(self, x: Tensor) -> Tensor:
        hidden = x
        for layer, norm, stage in zip(self.layers, self.norms, self.stages, strict=True):
            hidden = stage(norm(layer(hidden)))
        return x + hidden


class UnitResidualNetwork(nn.Module):
    """`members` networks of residual blocks, one for each of the (equal) `hidden_sizes`; none: a dense layer."""

    def __init__(
        self, members: int, n_in: int, hidden_sizes: Sequence[int], n_out: int, *, momentum: float
    ) -> None:
        super().__init__()
        options, sizes = HiddenLayers.of(hidden_sizes).options, tuple(hidden_sizes)
        check_blocks("hidden_sizes", sizes)
        require(not options.spectral_norm, "network.spectral_norm", "false where weights have length 1")
        width = sizes[0] if sizes else n_in
        self.input_norm = UnitBatchNorm(members, n_in, momentum)
        self.embedder = UnitLinear(members, n_in, width) if sizes else None
        self.blocks = nn.ModuleList(UnitBlock(members, width, options, momentum) for _ in sizes)
        self.output_norm = UnitRMSNorm(members, width) if sizes else None
        self.output = UnitLinear(members, width, n_out, has_bias=True)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n_in) -> (members, batch, n_out)."""
        x = self.input_norm(x.unsqueeze(0))
        if self.embedder is not None and self.output_norm is not None:
            x = self.embedder(x)
            for block in self.blocks:
                x = block(x)
            x = self.output_norm(x)
        return self.output(x)  # type: ignore[no-any-return]


def check_blocks(name: str, sizes: Sequence[int]) -> None:
    """Reject blocks of different sizes, which a residual network cannot add."""
    require(len(set(sizes)) <= 1, name, f"equal sizes, one for each block, got {list(sizes)}")


class MLPFlashSACModel(GaussianPolicyModel):
    """Squashed-Gaussian actor and critics that output the logits of a return's distribution over fixed atoms."""

    log_std_range = (-10.0, 2.0)

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (128, 128),
        num_critics: int = 2,
        critic_hidden_sizes: Sequence[int] | None = None,
        atoms: tuple[int, float, float] = (101, -5.0, 5.0),
        batch_norm_momentum: float = 0.01,
    ) -> None:
        """`atoms`: their number, the smallest and the largest."""
        make = partial(network, perceptron=partial(UnitResidualNetwork, momentum=batch_norm_momentum))
        super().__init__(obs_dim, action_dim, hidden_sizes, make)
        self.num_critics, self.atoms = num_critics, atoms
        sizes = hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes
        self.critic = on_features(
            obs_dim, lambda inputs: QuantileCriticEnsemble(num_critics, inputs, action_dim, sizes, atoms[0], make)
        )

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Means of the distributions: of twin critics a pair of (batch,), of any other number (batch, num_critics)."""
        logits = self.critic(batch_of(obs, self.obs_dim), as_batch(actions))
        count, low, high = self.atoms
        values = (logits.softmax(-1) * torch.linspace(low, high, count, device=logits.device)).sum(-1)
        return (values[0], values[1]) if self.num_critics == 2 else values.T
