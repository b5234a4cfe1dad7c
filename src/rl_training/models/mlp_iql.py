"""Gaussian actor, twin critics and a state value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.parts import (
    ClippedGaussianActor,
    CriticEnsemble,
    SampledActions,
    ValueNetwork,
    as_batch,
    gaussian_log_density,
    orthogonal_,
)


class ClippedGaussianModel(nn.Module):
    """An actor alone: what behaviour cloning needs; a subclass adds the critics."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.actor = ClippedGaussianActor(obs_dim, action_dim, hidden_sizes)
        orthogonal_(self, math.sqrt(2))

    def sample_actions(self, obs: Tensor, deterministic: bool = False) -> SampledActions:
        """Actions within [-1, 1]: those that fall outside are clipped, and have the density of what was drawn."""
        mean, log_std = self.actor(as_batch(obs))
        drawn = mean if deterministic else mean + log_std.exp() * torch.randn_like(mean)
        return SampledActions(drawn.clamp(-1, 1), gaussian_log_density(mean, log_std, drawn))


class MLPIQLModel(ClippedGaussianModel):
    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.critic = CriticEnsemble(2, obs_dim, action_dim, hidden_sizes)
        self.state_value = ValueNetwork(obs_dim, hidden_sizes)
        for part in (self.critic, self.state_value):
            orthogonal_(part, math.sqrt(2))

    def q_values(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        values = self.critic(as_batch(obs), as_batch(actions))
        return values[0], values[1]

    def value(self, obs: Tensor) -> Tensor:
        return self.state_value(as_batch(obs))  # type: ignore[no-any-return]
