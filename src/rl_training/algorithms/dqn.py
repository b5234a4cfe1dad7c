"""DQN: Mnih et al., "Human-level control through deep reinforcement learning", 2015 (double: van Hasselt, 2016)."""

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
    double: bool = setting(False)


def dqn_loss(values: Batch) -> Metrics:
    """From `q_values` (batch, actions), `actions`, `target_values` (batch,): the Huber loss and what it is made of."""
    q = chosen(values["q_values"], values["actions"])
    error = q - values["target_values"]
    return {
        "loss": huber(error).mean(),
        "q_value_mean": q.mean(),
        "target_mean": values["target_values"].mean(),
        "td_error_mean": error.abs().mean(),
    }


class DQN(Learner):
    name = "dqn"
    title = "Deep Q-network, with the double-Q switch"
    discrete_actions = True
    settings_type = DQNSettings
    targets: ClassVar[Mapping[str, str]] = {"target": "q"}

    def __init__(self, *, q_network: nn.Module | None = None, **keywords: Any) -> None:
        super().__init__(model=keywords.pop("model", q_network), **keywords)

    @classmethod
    def build_model(cls, shape: EnvShape, settings: Any) -> nn.Module:
        return MLPQNetwork(shape.obs_dim, shape.action_dim, settings.hidden_sizes)

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"q": model}

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(("q",), self.loss),)

    def loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        q_network = self.networks["q"]
        next_target = q_network(groups["target"], batch["next_obs"])
        # Double: the online network chooses the action, the target network says what it is worth.
        chooser = q_network(groups["q"], batch["next_obs"]) if self.settings.double else next_target
        next_value = chosen(next_target, chooser.argmax(-1))
        metrics = dqn_loss(
            {
                "q_values": q_network(groups["q"], batch["obs"]),
                "actions": batch["actions"],
                "target_values": td_target(batch, self.settings.gamma, next_value),
            }
        )
        return metrics["loss"], metrics

    def greedy(self, groups: Groups, obs: Tensor) -> Tensor:
        return self.networks["q"](groups["q"], obs).argmax(-1)  # type: ignore[no-any-return]

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        random = (noise[:, 1] * self.action_dim).long().clamp(max=self.action_dim - 1)
        return torch.where(noise[:, 0] < amount, random, self.greedy(groups, obs))

    def exploration(self, progress: float) -> float:
        settings = self.settings
        share = progress / settings.exploration_fraction if settings.exploration_fraction > 0 else 1.0
        return linear(settings.epsilon_start, settings.epsilon_end, share)
