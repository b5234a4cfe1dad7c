"""A perceptron that gives one value per discrete action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rl_training.models.parts import StackedMLP, as_batch


class MLPQNetwork(nn.Module):
    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (64, 64)) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.net = StackedMLP(1, obs_dim, hidden_sizes, action_dim)

    def forward(self, obs: Tensor) -> Tensor:
        """(batch, obs) -> (batch, actions)."""
        return self.net(as_batch(obs)).squeeze(0)  # type: ignore[no-any-return]

    @torch.no_grad()
    def act(self, obs: Tensor, epsilon: float = 0.0) -> Tensor:
        """The best action of each row, or with probability `epsilon` a random one."""
        greedy = self(obs).argmax(-1)
        random = torch.randint_like(greedy, self.action_dim)
        return torch.where(torch.rand(greedy.shape, device=greedy.device) < epsilon, random, greedy)
