"""C51's network: for every action, the logits of its return over fixed atoms."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.core.checks import require
from rl_training.models.features import ObsDim
from rl_training.models.mlp_q_network import DistributionalQNetwork
from rl_training.models.parts import check_count


class MLPC51QNetwork(DistributionalQNetwork):
    """(batch, obs) -> (batch, actions, atoms), before the softmax."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (64, 64),
        num_atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
        dueling: bool = False,
        noisy: bool = False,
    ) -> None:
        check_count("num_atoms", num_atoms, minimum=2)
        require(v_min < v_max, "v_min", f"< v_max ({v_max}), got {v_min}")
        super().__init__(obs_dim, action_dim, hidden_sizes, num_atoms, dueling, noisy)
        self.v_min, self.v_max = v_min, v_max

    def action_values(self, obs: Tensor) -> Tensor:
        """(batch, actions): the expected returns."""
        logits = self(obs)
        atoms = torch.linspace(self.v_min, self.v_max, self.outputs, device=logits.device)
        return (logits.softmax(-1) * atoms).sum(-1)  # type: ignore[no-any-return]
