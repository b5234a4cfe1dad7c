"""Perceptrons that value discrete actions: one number each, or a distribution of `outputs` numbers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.parts import StackedMLP, as_batch


class DistributionalQNetwork(nn.Module):
    """(batch, obs) -> (batch, actions, outputs). Dueling: a value and advantages that are zero on average."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int], outputs: int, dueling: bool = False
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.outputs, self.dueling = outputs, dueling
        if dueling and hidden_sizes:
            self.trunk: nn.Module | None = StackedMLP(1, obs_dim, hidden_sizes[:-1], hidden_sizes[-1])
            obs_dim = hidden_sizes[-1]
        else:
            self.trunk = None
        sizes = () if dueling else hidden_sizes
        self.net = StackedMLP(1, obs_dim, sizes, (action_dim + dueling) * outputs)

    def forward(self, obs: Tensor) -> Tensor:
        hidden = as_batch(obs)
        if self.trunk is not None:
            hidden = F.relu(self.trunk(hidden)).squeeze(0)
        out: Tensor = self.net(hidden).squeeze(0).unflatten(-1, (-1, self.outputs))
        if not self.dueling:
            return out
        value, advantages = out[:, :1], out[:, 1:]
        return value + advantages - advantages.mean(1, keepdim=True)

    def action_values(self, obs: Tensor) -> Tensor:
        """(batch, actions): what the actions are worth on average."""
        raise NotImplementedError

    @torch.no_grad()
    def act(self, obs: Tensor, epsilon: float = 0.0) -> Tensor:
        """The best action of each row, or with probability `epsilon` a random one."""
        greedy = self.action_values(obs).argmax(-1)
        random = torch.randint_like(greedy, self.action_dim)
        return torch.where(torch.rand(greedy.shape, device=greedy.device) < epsilon, random, greedy)


class MLPQNetwork(DistributionalQNetwork):
    """(batch, obs) -> (batch, actions)."""

    def __init__(
        self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (64, 64), dueling: bool = False
    ) -> None:
        super().__init__(obs_dim, action_dim, hidden_sizes, 1, dueling)

    def forward(self, obs: Tensor) -> Tensor:
        return super().forward(obs).squeeze(-1)

    def action_values(self, obs: Tensor) -> Tensor:
        return self(obs)  # type: ignore[no-any-return]
