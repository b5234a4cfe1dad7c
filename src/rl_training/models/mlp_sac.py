"""SAC's networks: squashed-Gaussian actor and an ensemble of critics."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.parts import CriticEnsemble, GaussianActor, SampledActions, as_batch


class GaussianPolicyModel(nn.Module):
    """A squashed-Gaussian actor; a subclass adds the critics."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.actor = GaussianActor(obs_dim, action_dim, hidden_sizes)

    def sample_actions(self, obs: Tensor, deterministic: bool = False) -> SampledActions:
        """Random actions, or the mode of the policy."""
        obs = as_batch(obs)
        noise = None if deterministic else torch.randn(obs.shape[0], self.action_dim, device=obs.device)
        return SampledActions(*self.actor(obs, noise))


class MLPSACModel(GaussianPolicyModel):
    """Squashed-Gaussian actor and `num_critics` critics."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256), num_critics: int = 2
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.num_critics = num_critics
        self.critic = CriticEnsemble(num_critics, obs_dim, action_dim, hidden_sizes)

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Twin critics give a pair of (batch,) tensors, any other number (batch, num_critics)."""
        values = self.critic(as_batch(obs), as_batch(actions))
        return (values[0], values[1]) if self.num_critics == 2 else values.T
