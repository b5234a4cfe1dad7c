"""Q networks of discrete actions: one value each, or a distribution of `outputs` numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.config.network import HiddenLayers
from rl_training.core.checks import require
from rl_training.models.features import ObsDim, make_features
from rl_training.models.noisy import DenseLayers
from rl_training.models.own import OwnNetworks
from rl_training.models.parts import as_batch


class DistributionalQNetwork(nn.Module):
    """(batch, obs) -> (batch, actions, outputs). `obs_dim` may be an image shape, or other observations with features.

    `dueling` (Wang et al. 2016): after all hidden layers but the last, one stream computes the value of the state and
    one the advantages, which are zero on average. `noisy` (Fortunato et al. 2018): every layer but the one that reads
    the observation has noisy weights; with `reads_obs` false, every layer has. `hidden_sizes` may be `HiddenLayers`.
    """

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int],
        outputs: int,
        dueling: bool = False,
        noisy: bool = False,
        reads_obs: bool = True,
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.outputs = obs_dim, action_dim, outputs
        self.image = make_features(obs_dim)  # the features of observations that are not vectors
        layers = HiddenLayers.of(hidden_sizes)
        self.trunk: DenseLayers | None
        self.value: DenseLayers | None
        self.net: nn.Module
        inputs: Any = obs_dim if self.image is None else self.image.features
        if layers.module is not None:
            require(not (dueling or noisy), layers.name, "left out where dueling or noisy is true")
            self.trunk, self.value = None, None
            self.net = OwnNetworks(1, inputs, action_dim * outputs, layers.module, layers.name)
        else:
            self._build_layers([inputs, *hidden_sizes], layers, dueling, noisy, reads_obs)
        self.parts = [part for part in (self.trunk, self.value, self.net) if isinstance(part, DenseLayers)]
        self.noise_size = sum(part.noise_size for part in self.parts)

    def _build_layers(
        self, sizes: list[int], layers: HiddenLayers, dueling: bool, noisy: bool, reads_obs: bool
    ) -> None:
        shared = max(len(sizes) - 2, 0) if dueling else 0  # layers before the two streams
        count = len(sizes) - shared
        # A network of one layer has its noise there; an image is read by the convolutions.
        reads = int(reads_obs and self.image is None and (shared > 0 or count > 1))
        plain = count if not noisy else reads * (not shared)
        self.trunk = DenseLayers(sizes[: shared + 1], reads if noisy else shared, layers, True) if shared else None
        self.value = DenseLayers([*sizes[shared:], self.outputs], plain, layers) if dueling else None
        self.net = DenseLayers([*sizes[shared:], self.action_dim * self.outputs], plain, layers)

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        """`noise`: `noise_size` normal numbers for the noisy layers, for all rows or each; None: the mean weights."""
        hidden, noises = as_batch(obs) if self.image is None else self.image(obs), self._split(noise)
        if not noises:
            return self.net(hidden).squeeze(0).unflatten(-1, (-1, self.outputs))  # type: ignore[no-any-return]
        if self.trunk is not None:
            hidden = self.trunk(hidden, noises.pop(0))
        if self.value is None:
            values: Tensor = self.net(hidden, noises[0])
            return values.unsqueeze(-1) if self.outputs == 1 else values.unflatten(-1, (-1, self.outputs))
        value = self.value(hidden, noises[0]).unsqueeze(1)
        advantages = self.net(hidden, noises[1]).unflatten(-1, (-1, self.outputs))
        return value + advantages - advantages.mean(1, keepdim=True)  # type: ignore[no-any-return]

    def _split(self, noise: Tensor | None) -> list[Tensor | None]:
        sizes = [part.noise_size for part in self.parts]
        return [None] * len(sizes) if noise is None else list(noise.split(sizes, -1))

    def action_values(self, obs: Tensor) -> Tensor:
        """(batch, actions): the expected returns."""
        raise NotImplementedError

    @torch.no_grad()
    def act(self, obs: Tensor, epsilon: float = 0.0) -> Tensor:
        """The best action of each row, or with probability `epsilon` a random one."""
        greedy = self.action_values(obs).argmax(-1)
        random = torch.randint_like(greedy, self.action_dim)
        return torch.where(torch.rand(greedy.shape, device=greedy.device) < epsilon, random, greedy)


class MLPQNetwork(DistributionalQNetwork):
    """(batch, obs) -> (batch, actions)."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        dueling: bool = False,
        noisy: bool = False,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, 1, dueling, noisy)
        self.is_plain = self.parts == [self.net]  # neither dueling nor the user's

    def forward(self, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        if self.is_plain:  # the same without an axis of one element in between
            return self.net(as_batch(obs) if self.image is None else self.image(obs), noise)  # type: ignore[no-any-return]
        return super().forward(obs, noise).squeeze(-1)

    def action_values(self, obs: Tensor) -> Tensor:
        return self(obs)  # type: ignore[no-any-return]
