"""SAC's networks: squashed-Gaussian actor and an ensemble of critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from rl_training.models.features import ObsDim, batch_of, on_features, rows_of
from rl_training.models.parts import (
    CriticEnsemble,
    GaussianActor,
    NetworkFunction,
    SampledActions,
    as_batch,
    network,
)


class GaussianPolicyModel(nn.Module):
    """A squashed-Gaussian actor; a subclass adds the critics. `make` makes the networks between inputs and outputs."""

    log_std_range: ClassVar[tuple[float, float] | None] = None  # of the actor

    def __init__(
        self, obs_dim: ObsDim, action_dim: int, hidden_sizes: Sequence[int], make: NetworkFunction = network
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.actor = on_features(
            obs_dim, lambda inputs: GaussianActor(inputs, action_dim, hidden_sizes, self.log_std_range, make)
        )

    def sample_actions(self, obs: Tensor, deterministic: bool = False) -> SampledActions:
        """Random actions, or the mode of the policy."""
        obs, device = batch_of(obs, self.obs_dim), next(self.parameters()).device
        noise = None if deterministic else torch.randn(rows_of(obs), self.action_dim, device=device)
        return SampledActions(*self.actor(obs, noise))


class MLPSACModel(GaussianPolicyModel):
    """Squashed-Gaussian actor and `num_critics` critics; `critic_hidden_sizes` defaults to `hidden_sizes`."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        critic_hidden_sizes: Sequence[int] | None = None,
        make: NetworkFunction = network,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, make)
        self.num_critics = num_critics
        sizes = hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes
        self.critic = on_features(obs_dim, lambda inputs: CriticEnsemble(num_critics, inputs, action_dim, sizes, make))

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Twin critics give a pair of (batch,) tensors, any other number (batch, num_critics)."""
        values = self.critic(batch_of(obs, self.obs_dim), as_batch(actions))
        return (values[0], values[1]) if self.num_critics == 2 else values.T
