"""IQL: Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning", 2021.

Q is only evaluated at recorded actions: V is an upper expectile of Q over them, and the policy is weighted behaviour
cloning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from rl_training.algorithms.base import Batch, BoundNetwork, LossResult, Noise, Phase, Polyak
from rl_training.algorithms.loss_functions import EXPECTILE
from rl_training.algorithms.loss_functions import iql_loss as iql_loss
from rl_training.algorithms.losses import (
    advantage_weights,
    ensemble_squared_error,
    expectile_term,
    td_target,
    weighted_cloning_term,
)
from rl_training.algorithms.offline import GaussianPolicyLearner, GaussianPolicyNetworks
from rl_training.config.fields import above, closed_interval, one_of, open_interval, setting
from rl_training.config.offline_settings import OfflineSettings
from rl_training.core.schedules import cosine
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_iql import MLPIQLModel

# The authors' settings for other domains (configs/, README; without their dropout on Kitchen and Adroit).
BY_DOMAIN: dict[str, dict[str, Any]] = {
    "antmaze": {"expectile": 0.9, "beta": 10.0, "reward_scale": 1.0, "reward_shift": -1.0},
    "kitchen": {"expectile": 0.7, "beta": 0.5, "reward_scale": 1.0},
    "adroit": {"expectile": 0.7, "beta": 0.5, "reward_scale": 1.0},
}


@dataclass(frozen=True)
class IQLSettings(OfflineSettings):
    # Defaults: the authors' code for locomotion (implicit_q_learning: mujoco_config.py, learner.py).
    reward_scale: float | Literal["return_range"] = setting("return_range", above(0))
    tau: float = setting(0.005, closed_interval(0, 1))  # share of a network that its target takes over at each update
    expectile: float = setting(EXPECTILE, open_interval(0, 1))  # of the values that V estimates; 1: the best
    beta: float = setting(3.0, above(0))  # multiplies the advantage (the paper's inverse temperature)
    max_advantage_weight: float = setting(100.0, above(0))  # bound of an action's weight in the actor's loss
    actor_schedule: str = setting("cosine", one_of("cosine", "constant"))  # cosine: the actor's rate decreases to 0


class IQLNetworks(GaussianPolicyNetworks):
    value: BoundNetwork[Tensor]  # obs -> (batch,)
    critic: BoundNetwork[Tensor]  # (obs, action) -> (members, batch)

    def target_q(self, batch: Batch) -> Tensor:
        """The minimum of the target critics for the recorded actions."""
        return self.target.critic(batch["obs"], batch["actions"]).amin(0)


class IQL(GaussianPolicyLearner):
    name = "iql"
    title = "Implicit Q-learning"
    by_domain = BY_DOMAIN
    settings_type = IQLSettings
    networks_type = IQLNetworks
    settings: IQLSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        inputs = network_input(spec.observation, settings.network)
        return MLPIQLModel(inputs, spec.action.size, settings.actor_layers, settings.critic_layers)

    def modules(self, model: Any) -> dict[str, nn.Module]:
        return {"value": model.state_value, "actor": model.actor, "critic": model.critic}

    def phases(self) -> tuple[Phase, ...]:
        # The authors' order: the actor and the critics use the new V, the targets are updated last.
        return (
            Phase("value", ("value",), self.value_loss),
            Phase("actor", ("actor",), self.actor_loss, rate=self.actor_rate),
            Phase("critic", ("critic",), self.critic_loss),
        )

    def actor_rate(self, progress: float) -> float:
        rate = self.rate(progress)
        return cosine(rate, 0.0, progress) if self.settings.actor_schedule == "cosine" else rate

    def target_update(self) -> Polyak:
        return Polyak({"target_critic": "critic"}, self.settings.tau, after="critic")

    def value_loss(self, nets: IQLNetworks, batch: Batch, noise: Noise) -> LossResult:
        value = nets.value(batch["obs"])
        loss = expectile_term(nets.target_q(batch), value, self.settings.expectile)
        return LossResult(loss, {"value_loss": loss, "value_mean": value.mean()})

    def actor_loss(self, nets: IQLNetworks, batch: Batch, noise: Noise) -> LossResult:
        advantage = nets.target_q(batch) - nets.value(batch["obs"])
        weights = advantage_weights(advantage, self.settings.beta, self.settings.max_advantage_weight)
        loss = weighted_cloning_term(weights, nets.behavior_log_density(batch)[0])
        return LossResult(loss, {"actor_loss": loss, "advantage_weight_mean": weights.mean()})

    def critic_loss(self, nets: IQLNetworks, batch: Batch, noise: Noise) -> LossResult:
        target = td_target(batch, self.settings.gamma, nets.value(batch["next_obs"]))
        loss = ensemble_squared_error(nets.critic(batch["obs"], batch["actions"]), target)
        return LossResult(loss, {"critic_loss": loss, "target_q_mean": target.mean()})
