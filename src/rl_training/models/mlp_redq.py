"""REDQ's networks: squashed-Gaussian actor and an ensemble of critics."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rl_training.models.features import ObsDim, batch_of
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.parts import as_batch, xavier_


class MLPREDQModel(MLPSACModel):
    """SAC's networks with `num_critics` critics, initialised as in the authors' code."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 10,
        critic_hidden_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, num_critics, critic_hidden_sizes)
        xavier_(self)

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor:
        """The values of all critics: (batch, num_critics)."""
        return self.critic(batch_of(obs, self.obs_dim), as_batch(actions)).T  # type: ignore[no-any-return]
