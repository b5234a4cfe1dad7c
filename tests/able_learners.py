"""Learners that take action masks or actions without bounds, for tests of environments."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import Act
from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.td3 import TD3
from rl_training.core.specs import MASK

ALGORITHMS = {"masked_dqn": "able_learners:MaskedDQN", "unbounded_td3": "able_learners:UnboundedTD3"}


class MaskedDQN(DQN):
    """DQN that acts within the masks of a Discrete action."""

    name = "masked_dqn"
    takes_masks = True

    def greedy(self, nets: Any, obs: Any, noise: Tensor | None = None) -> Act:
        return Act(nets.q(obs).masked_fill(~allowed(obs), -torch.inf).argmax(-1))

    def explore(self, nets: Any, obs: Any, noise: Tensor, amount: Tensor) -> Act:
        if not isinstance(obs, dict):
            return super().explore(nets, obs, noise, amount)
        counts = allowed(obs).cumsum(-1)
        random = (counts > (noise[:, 1] * counts[:, -1]).floor().unsqueeze(-1)).float().argmax(-1)
        return Act(torch.where(noise[:, 0] < amount, random, self.greedy(nets, obs).action))


def allowed(obs: Any) -> Tensor:
    if not isinstance(obs, dict):
        return torch.ones(1, dtype=torch.bool, device=obs.device)
    found: Tensor = obs[MASK].bool()
    return found


class UnboundedTD3(TD3):
    """TD3 that takes any Box: its actions are in the environment's units, from -1 to 1."""

    name = "unbounded_td3"
    takes_unbounded_actions = True
