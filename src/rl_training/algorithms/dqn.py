"""DQN: Mnih et al., "Human-level control through deep reinforcement learning", 2015, and its switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Batch, Groups, Learner, Metrics, Noise, OffPolicySettings, Phase
from rl_training.algorithms.losses import chosen, huber, td_target
from rl_training.core.fields import above, at_least, setting, within
from rl_training.core.schedules import linear
from rl_training.core.types import EnvShape
from rl_training.models.mlp_q_network import MLPQNetwork


@dataclass(frozen=True)
class DQNSettings(OffPolicySettings):
    # Defaults: RL Baselines3 Zoo's dqn.yml, LunarLander and Acrobot rows, which also solve CartPole.
    buffer_capacity: int = setting(50_000, at_least(1))
    batch_size: int = setting(128, at_least(1))
    learning_starts: int = setting(1000, at_least(0))
    train_frequency: int = setting(4, at_least(1))
    gradient_updates_per_step: int = setting(4, at_least(1))
    learning_rate: float = setting(6.3e-4, above(0))
    max_grad_norm: float | None = setting(10.0, above(0))  # Stable-Baselines3's default
    target_update_interval: int = setting(250, at_least(1))  # environment steps
    epsilon_start: float = setting(1.0, within(0, 1))
    epsilon_end: float = setting(0.1, within(0, 1))
    exploration_fraction: float = setting(0.12, within(0, 1))  # share of the run over which epsilon falls
    double: bool = setting(False)  # van Hasselt et al. 2016
    dueling: bool = setting(False)  # Wang et al. 2016
    n_step: int = setting(1, at_least(1))


def value_terms(q: Tensor, target: Tensor, row_losses: Tensor) -> Metrics:
    """What every member of the family reports: the values of the taken actions (batch,) against their targets."""
    return {
        "loss": row_losses.mean(),
        "q_value_mean": q.mean(),
        "target_mean": target.mean(),
        "td_error_mean": (q - target).abs().mean(),
    }


def dqn_loss(values: Batch) -> Metrics:
    """From `q_values` (batch, actions), `actions`, `target_values` (batch,): the Huber loss and what it is made of."""
    q, target = chosen(values["q_values"], values["actions"]), values["target_values"]
    return value_terms(q, target, huber(q - target))


class DQN(Learner):
    name = "dqn"
    title = "Deep Q-network, with switches for double, dueling and n-step"
    discrete_actions = True
    settings_type = DQNSettings
    targets: ClassVar[Mapping[str, str]] = {"target": "q"}

    def __init__(self, *, q_network: nn.Module | None = None, **keywords: Any) -> None:
        super().__init__(model=keywords.pop("model", q_network), **keywords)

    @classmethod
    def build_model(cls, shape: EnvShape, settings: Any) -> nn.Module:
        return MLPQNetwork(shape.obs_dim, shape.action_dim, settings.hidden_sizes, settings.dueling)

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"q": model}

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(("q",), self.loss),)

    def loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        network = self.networks["q"]
        outputs = network(groups["q"], batch["obs"])
        next_outputs = network(groups["target"], batch["next_obs"])
        # Double: the online network chooses the action, the target network says what it is worth.
        chooser = network(groups["q"], batch["next_obs"]) if self.settings.double else next_outputs
        best = self.action_values(chooser).argmax(-1)
        metrics = self.terms(outputs, chosen(next_outputs, best), batch)
        return metrics["loss"], metrics

    def action_values(self, outputs: Tensor) -> Tensor:
        """The network's outputs as (batch, actions): what each action is worth on average."""
        return outputs

    def terms(self, outputs: Tensor, next_outputs: Tensor, batch: Batch) -> Metrics:
        """The loss, from the outputs for every action and those of the best next action."""
        target = td_target(batch, self.settings.gamma, next_outputs)
        return dqn_loss({"q_values": outputs, "actions": batch["actions"], "target_values": target})

    def greedy(self, groups: Groups, obs: Tensor) -> Tensor:
        return self.action_values(self.networks["q"](groups["q"], obs)).argmax(-1)

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        random = (noise[:, 1] * self.action_dim).long().clamp(max=self.action_dim - 1)
        return torch.where(noise[:, 0] < amount, random, self.greedy(groups, obs))

    def exploration(self, progress: float) -> float:
        settings = self.settings
        share = progress / settings.exploration_fraction if settings.exploration_fraction > 0 else 1.0
        return linear(settings.epsilon_start, settings.epsilon_end, share)
