"""IQL's networks: Gaussian actor, twin critics and a state value."""

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
    """A Gaussian actor, as for behaviour cloning; a subclass adds the critics."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.actor = ClippedGaussianActor(obs_dim, action_dim, hidden_sizes)
        orthogonal_(self, math.sqrt(2))

    def sample_actions(self, obs: Tensor, deterministic: bool = False) -> SampledActions:
        """Actions clipped to [-1, 1], with the log-density of the unclipped sample."""
        mean, log_std = self.actor(as_batch(obs))
        sample = mean if deterministic else mean + log_std.exp() * torch.randn_like(mean)
        return SampledActions(sample.clamp(-1, 1), gaussian_log_density(mean, log_std, sample))


class MLPIQLModel(ClippedGaussianModel):
    """Gaussian actor, twin critics and a state value, with orthogonal weights."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.critic = CriticEnsemble(2, obs_dim, action_dim, hidden_sizes)
        self.state_value = ValueNetwork(obs_dim, hidden_sizes)
        for part in (self.critic, self.state_value):
            orthogonal_(part, math.sqrt(2))

    def q_values(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The values of both critics, (batch,) each."""
        values = self.critic(as_batch(obs), as_batch(actions))
        return values[0], values[1]

    def value(self, obs: Tensor) -> Tensor:
        """The values of states: (batch,)."""
        return self.state_value(as_batch(obs))  # type: ignore[no-any-return]
