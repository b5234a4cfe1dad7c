"""IQL's networks: Gaussian actor, twin critics and a state value."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.features import ObsDim, batch_of, on_features
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

    def __init__(self, obs_dim: ObsDim, action_dim: int, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.actor = on_features(obs_dim, lambda inputs: ClippedGaussianActor(inputs, action_dim, hidden_sizes))
        orthogonal_(self, math.sqrt(2))

    def sample_actions(self, obs: Tensor, deterministic: bool = False) -> SampledActions:
        """Actions clipped to [-1, 1], with the log-density of the unclipped sample."""
        mean, log_std = self.actor(batch_of(obs, self.obs_dim))
        sample = mean if deterministic else mean + log_std.exp() * torch.randn_like(mean)
        return SampledActions(sample.clamp(-1, 1), gaussian_log_density(mean, log_std, sample))


class MLPIQLModel(ClippedGaussianModel):
    """Gaussian actor, twin critics and a state value, with orthogonal weights.

    `critic_hidden_sizes`, of the critics and the state value, defaults to `hidden_sizes`.
    """

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        critic_hidden_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        sizes = hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes
        self.critic = on_features(obs_dim, lambda inputs: CriticEnsemble(2, inputs, action_dim, sizes))
        self.state_value = on_features(obs_dim, lambda inputs: ValueNetwork(inputs, sizes))
        for part in (self.critic, self.state_value):
            orthogonal_(part, math.sqrt(2))

    def q_values(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The values of both critics, (batch,) each."""
        values = self.critic(batch_of(obs, self.obs_dim), as_batch(actions))
        return values[0], values[1]

    def value(self, obs: Tensor) -> Tensor:
        """The values of states: (batch,)."""
        return self.state_value(batch_of(obs, self.obs_dim))  # type: ignore[no-any-return]
