"""IQN's network: the quantiles of every action's return at given levels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.config.network import HiddenLayers
from rl_training.core.checks import require
from rl_training.models.features import ObsDim, make_features
from rl_training.models.mlp_q_network import DistributionalQNetwork
from rl_training.models.noisy import DenseLayers
from rl_training.models.parts import as_batch, check_count, midpoints


class MLPIQNQNetwork(DistributionalQNetwork):
    """(batch, obs) and (batch, levels) -> (batch, actions, levels), levels between 0 and 1.

    The features of the observation (from convolutions, or from the first hidden layer) are multiplied by those of a
    level, a layer over `num_cosines` cosines of it; the other hidden layers follow. The default levels are
    `num_policy_quantiles` even ones, whose mean is the value of an action.
    """

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        num_policy_quantiles: int = 32,
        num_cosines: int = 64,
        dueling: bool = False,
        noisy: bool = False,
    ) -> None:
        check_count("num_policy_quantiles", num_policy_quantiles)
        check_count("num_cosines", num_cosines)
        layers = HiddenLayers.of(hidden_sizes)
        require(layers.module is None, layers.name, "left out for IQN, whose layers also take levels")
        reader = make_features(obs_dim)
        if reader is None:
            require(len(hidden_sizes) > 0, "hidden_sizes", "of at least one layer, which the levels multiply")
            features, *following = hidden_sizes
        else:
            features, following = int(reader.features), list(hidden_sizes)  # type: ignore[arg-type]
        super().__init__(features, action_dim, layers.resized(following), 1, dueling, noisy, reads_obs=False)
        self.obs_dim, self.num_policy_quantiles, self.num_cosines = obs_dim, num_policy_quantiles, num_cosines
        if isinstance(obs_dim, int):
            reader = DenseLayers([obs_dim, features], 1, layers, ends_hidden=True)
        self.reader: Any = reader
        self.levels = DenseLayers([num_cosines, features], 1, ends_hidden=True)

    def forward(self, obs: Tensor, noise: Tensor | None = None, levels: Tensor | None = None) -> Tensor:
        features = self.reader(as_batch(obs) if isinstance(self.obs_dim, int) else obs)
        if levels is None:  # one row for all observations, so that an exported network has its features as constants
            levels = midpoints(self.num_policy_quantiles, features.device).unsqueeze(0)
        steps = torch.arange(self.num_cosines, device=features.device)
        cosines = torch.cos(math.pi * steps * levels.unsqueeze(-1))  # (batch or 1, levels, cosines)
        level_features = self.levels(cosines.flatten(0, 1)).unflatten(0, levels.shape)
        joined = features.unsqueeze(1) * level_features  # (batch, levels, features)
        rows, shape = joined.flatten(0, 1), joined.shape[:2]
        if noise is not None and noise.dim() > 1:  # one vector for each observation, the same at all its levels
            noise = noise.unsqueeze(1).expand(-1, shape[1], -1).flatten(0, 1)
        values: Tensor = super().forward(rows, noise).squeeze(-1).unflatten(0, shape)
        return values.transpose(1, 2)

    def action_values(self, obs: Tensor) -> Tensor:
        """(batch, actions): the means of the quantiles."""
        return self(obs).mean(-1)  # type: ignore[no-any-return]
