"""REDQ's networks: squashed-Gaussian actor and an ensemble of critics."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rl_training.models.mlp_sac import GaussianPolicyModel
from rl_training.models.parts import CriticEnsemble, as_batch, xavier_


class MLPREDQModel(GaussianPolicyModel):
    """Squashed-Gaussian actor and `num_critics` critics, initialised as in the authors' code."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256), num_critics: int = 10
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.num_critics = num_critics
        self.critic = CriticEnsemble(num_critics, obs_dim, action_dim, hidden_sizes)
        xavier_(self)

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """The values of all critics: (batch, num_critics)."""
        return self.critic(as_batch(obs), as_batch(actions)).T  # type: ignore[no-any-return]
