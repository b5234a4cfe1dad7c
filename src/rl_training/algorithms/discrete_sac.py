"""Discrete SAC: Christodoulou, "Soft Actor-Critic for Discrete Action Settings", 2019."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.algorithms.base import Act, Batch, BoundNetwork, LossResult, Noise, NoiseSpec
from rl_training.algorithms.loss_functions import discrete_sac_loss as discrete_sac_loss
from rl_training.algorithms.losses import chosen_by_members, expected, td_target
from rl_training.algorithms.sac import SAC, SACNetworks, SACSettings
from rl_training.config.fields import at_least, closed_interval, setting
from rl_training.core.specs import EnvSpec
from rl_training.models.distributions import Categorical
from rl_training.models.features import network_input
from rl_training.models.mlp_discrete_sac import MLPDiscreteSACModel


@dataclass(frozen=True)
class DiscreteSACSettings(SACSettings):
    # Defaults: those of SAC, with the replay of DQN. The paper's share of 0.98 keeps the policy nearly uniform; a lower
    # one learns better.
    buffer_capacity: int = setting(100_000, at_least(1))
    learning_starts: int = setting(1000, at_least(0))
    target_entropy_share: float = setting(0.5, closed_interval(0, 1))  # of log(actions): `target_entropy: auto`


class DiscreteSACNetworks(SACNetworks):
    actor: BoundNetwork[Tensor]  # type: ignore[assignment]  # obs -> logits (batch, actions)
    critic: BoundNetwork[Tensor]  # obs -> (members, batch, actions)

    def log_probs(self, obs: Tensor) -> Tensor:
        """(batch, actions): the logarithms of the policy's probabilities."""
        return F.log_softmax(self.actor(obs), -1)


class DiscreteSAC(SAC):
    """SAC over discrete actions: its target, actor and temperature take the expectation over actions, not a sample."""

    name = "discrete_sac"
    title = "Soft actor-critic for discrete actions"
    actions = ("discrete",)
    settings_type = DiscreteSACSettings
    networks_type = DiscreteSACNetworks
    settings: DiscreteSACSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        inputs = network_input(spec.observation, settings.network)
        layers = settings.actor_layers, settings.num_critics, settings.critic_layers
        return MLPDiscreteSACModel(inputs, spec.action.size, *layers)

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        return {}

    def critic_loss(self, nets: DiscreteSACNetworks, batch: Batch, noise: Noise) -> LossResult:  # type: ignore[override]
        log_probs = nets.log_probs(batch["next_obs"])
        next_q = nets.target.critic(batch["next_obs"]).amin(0)
        target = td_target(batch, self.settings.gamma, expected(log_probs, next_q - nets.alpha * log_probs))
        loss = self.critic_error(chosen_by_members(nets.critic(batch["obs"]), batch["actions"]), target)
        return LossResult(loss, {"critic_loss": loss, "target_q_mean": target.mean()})

    def policy_loss(self, nets: DiscreteSACNetworks, batch: Batch, noise: Noise) -> LossResult:  # type: ignore[override]
        log_probs = nets.log_probs(batch["obs"])
        value = self.policy_value(nets.critic(batch["obs"]))
        return self.policy_result(nets, expected(log_probs, log_probs), expected(log_probs, value))

    @property
    def target_entropy(self) -> float:
        given = self.settings.target_entropy
        return self.settings.target_entropy_share * math.log(self.action_dim) if given == "auto" else float(given)

    @cached_property
    def choices(self) -> Categorical:
        """The policy's distribution over actions."""
        return Categorical((self.action_dim,), joint=True)

    def greedy(self, nets: DiscreteSACNetworks, obs: Tensor) -> Act:  # type: ignore[override]
        return Act(self.choices.mode(nets.actor(obs)))

    def explore_noise(self, rows: int) -> NoiseSpec:
        return NoiseSpec(*self.choices.noise(rows))

    def explore(self, nets: DiscreteSACNetworks, obs: Tensor, noise: Tensor, amount: Tensor) -> Act:  # type: ignore[override]
        return Act(self.choices.sample(nets.actor(obs), noise))
