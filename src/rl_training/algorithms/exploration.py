"""Epsilon-greedy exploration: a share of the actions is random, which falls over the run."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rl_training.config.fields import closed_interval, setting
from rl_training.core.schedules import linear
from rl_training.core.specs import ArraySpec


@dataclass(frozen=True)
class EpsilonGreedySettings:
    """The share of random actions over a run."""

    epsilon_start: float = setting(1.0, closed_interval(0, 1))  # share of random actions at the start
    epsilon_end: float = setting(0.1, closed_interval(0, 1))  # share of random actions after `exploration_fraction`
    exploration_fraction: float = setting(0.12, closed_interval(0, 1))  # share of the run over which epsilon falls

    def epsilon(self, progress: float) -> float:
        """The share of random actions after this share of the run."""
        share = progress / self.exploration_fraction if self.exploration_fraction > 0 else 1.0
        return linear(self.epsilon_start, self.epsilon_end, share)


def epsilon_greedy(spec: ArraySpec, noise: Tensor, amount: Tensor, greedy: Tensor) -> Tensor:
    """The greedy actions, each replaced by a random one with probability `amount`; uniform noise (rows, 2)."""
    return torch.where(noise[:, 0] < amount, spec.from_uniforms(noise[:, 1]), greedy)
