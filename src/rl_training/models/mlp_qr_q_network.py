"""QR-DQN's network: the quantiles of every action's return."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rl_training.models.features import ObsDim
from rl_training.models.mlp_q_network import DistributionalQNetwork
from rl_training.models.parts import check_count


class MLPQRQNetwork(DistributionalQNetwork):
    """(batch, obs) -> (batch, actions, quantiles)."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        num_quantiles: int = 200,
        dueling: bool = False,
        noisy: bool = False,
    ) -> None:
        check_count("num_quantiles", num_quantiles)
        super().__init__(obs_dim, action_dim, hidden_sizes, num_quantiles, dueling, noisy)

    def action_values(self, obs: Tensor) -> Tensor:
        """(batch, actions): the means of the quantiles."""
        return self(obs).mean(-1)  # type: ignore[no-any-return]
