"""TQC's networks: squashed-Gaussian actor and quantile critics."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rl_training.models.features import ObsDim, batch_of, on_features
from rl_training.models.mlp_sac import GaussianPolicyModel
from rl_training.models.parts import QuantileCriticEnsemble, as_batch


class MLPTQCModel(GaussianPolicyModel):
    """Squashed-Gaussian actor and quantile critics; `critic_hidden_sizes` defaults to `hidden_sizes`."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 5,
        num_quantiles: int = 25,
        critic_hidden_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes)
        self.num_critics, self.num_quantiles = num_critics, num_quantiles
        sizes = hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes
        self.critic = on_features(
            obs_dim, lambda inputs: QuantileCriticEnsemble(num_critics, inputs, action_dim, sizes, num_quantiles)
        )

    def quantiles(self, obs: Tensor, actions: Tensor) -> Tensor:
        """(batch, num_critics, num_quantiles)."""
        return self.critic(batch_of(obs, self.obs_dim), as_batch(actions)).transpose(0, 1)  # type: ignore[no-any-return]

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """(batch, num_critics): the means of the quantiles."""
        return self.quantiles(obs, actions).mean(-1)
