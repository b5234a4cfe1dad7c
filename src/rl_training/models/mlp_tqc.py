"""TQC's networks: squashed-Gaussian actor and quantile critics."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rl_training.models.mlp_sac import GaussianPolicyModel
from rl_training.models.parts import QuantileCriticEnsemble, as_batch


class MLPTQCModel(GaussianPolicyModel):
    """Squashed-Gaussian actor and quantile critics; `critic_hidden_sizes` defaults to `hidden_sizes`."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 5,
        num_quantiles: int = 25,
        critic_hidden_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.num_critics, self.num_quantiles = num_critics, num_quantiles
        sizes = hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes
        self.critic = QuantileCriticEnsemble(num_critics, obs_dim, action_dim, sizes, num_quantiles)

    def quantiles(self, obs: Tensor, actions: Tensor) -> Tensor:
        """(batch, num_critics, num_quantiles)."""
        return self.critic(as_batch(obs), as_batch(actions)).transpose(0, 1)  # type: ignore[no-any-return]

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """(batch, num_critics): the means of the quantiles."""
        return self.quantiles(obs, actions).mean(-1)
