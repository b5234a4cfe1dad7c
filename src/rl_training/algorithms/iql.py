"""IQL: Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning", 2021.

No action that is not in the data is ever asked for: V is an upper expectile of Q over the recorded actions, and the
policy is cloned from them with weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Batch, Groups, Metrics, Noise, Phase
from rl_training.algorithms.bc import BC, behavior_log_density
from rl_training.algorithms.losses import as_rows, ensemble_squared_error, expectile_error, td_target
from rl_training.config.fields import above, inside, one_of, setting, within
from rl_training.config.settings import OfflineSettings
from rl_training.core.schedules import cosine
from rl_training.core.specs import EnvSpec
from rl_training.models.mlp_iql import MLPIQLModel

# What the authors chose elsewhere (configs/, README; their dropout on Kitchen and Adroit is not here).
BY_DOMAIN: dict[str, dict[str, Any]] = {
    "antmaze": {"expectile": 0.9, "beta": 10.0, "reward_scale": 1.0, "reward_shift": -1.0},
    "kitchen": {"expectile": 0.7, "beta": 0.5, "reward_scale": 1.0},
    "adroit": {"expectile": 0.7, "beta": 0.5, "reward_scale": 1.0},
}


@dataclass(frozen=True)
class IQLSettings(OfflineSettings):
    # Defaults: the authors' code for locomotion (implicit_q_learning configs/mujoco_config.py, learner.py).
    reward_scale: float | Literal["return_range"] = setting("return_range", above(0))
    tau: float = setting(0.005, within(0, 1))
    expectile: float = setting(0.7, inside(0, 1))
    beta: float = setting(3.0, above(0))  # multiplies the advantage (the paper's inverse temperature)
    max_advantage_weight: float = setting(100.0, above(0))
    actor_schedule: str = setting("cosine", one_of("cosine", "constant"))  # cosine: the actor's rate falls to zero


def advantage_weights(advantage: Tensor, beta: float, largest: float) -> Tensor:
    return (beta * advantage).exp().clamp(max=largest).detach()


def value_term(target_value: Tensor, value: Tensor, expectile: float) -> Tensor:
    return expectile_error(target_value - value, expectile).mean()


def actor_term(weights: Tensor, logprobs: Tensor) -> Tensor:
    return -(weights * logprobs).mean()


def iql_loss(values: Mapping[str, Any]) -> Metrics:
    """From `q1_values, q2_values, target_q_values, value_predictions, target_state_values, behavior_logprobs,
    advantage_weights` and, if it is not 0.7, `expectile`; all computed."""
    values = as_rows(values)
    target, weights = values["target_q_values"], values["advantage_weights"]
    expectile = float(values.get("expectile", IQLSettings.expectile))
    return {
        "critic_loss": ensemble_squared_error(torch.stack([values["q1_values"], values["q2_values"]]), target),
        "value_loss": value_term(values["target_state_values"], values["value_predictions"], expectile),
        "actor_loss": actor_term(weights, values["behavior_logprobs"]),
        "target_q_mean": target.mean(),
        "advantage_weight_mean": weights.mean(),
    }


class IQL(BC):
    name = "iql"
    title = "Implicit Q-learning"
    settings_type = IQLSettings
    learns_online = True
    by_domain = BY_DOMAIN
    targets: ClassVar[Mapping[str, str]] = {"target": "critic"}

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPIQLModel(spec.observation.size, spec.action.size, settings.hidden_sizes)

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"value": model.state_value, **super().modules(model), "critic": model.critic}  # type: ignore[dict-item]

    def phases(self) -> tuple[Phase, ...]:
        # The authors' order: the actor and the critics already see the new V, the targets move last.
        return (
            Phase(("value",), self.value_loss),
            Phase(("actor",), self.actor_loss),
            Phase(("critic",), self.critic_loss),
        )

    def set_progress(self, progress: float) -> None:
        super().set_progress(progress)
        value, actor, critic = self.engine.rate_values
        if self.settings.actor_schedule == "cosine":
            actor = cosine(actor, progress)
        self.engine.set_rates([value, actor, critic])

    def target_q(self, groups: Groups, batch: Batch) -> Tensor:
        """The smaller of the target critics, of the recorded actions."""
        return self.networks["critic"](groups["target"], batch["obs"], batch["actions"]).amin(0)  # type: ignore[no-any-return]

    def value_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        value = self.networks["value"](groups["value"], batch["obs"])
        loss = value_term(self.target_q(groups, batch), value, self.settings.expectile)
        return loss, {"value_loss": loss, "value_mean": value.mean()}

    def actor_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        advantage = self.target_q(groups, batch) - self.networks["value"](groups["value"], batch["obs"])
        weights = advantage_weights(advantage, self.settings.beta, self.settings.max_advantage_weight)
        loss = actor_term(weights, behavior_log_density(self.networks["actor"], groups["actor"], batch)[0])
        return loss, {"actor_loss": loss, "advantage_weight_mean": weights.mean()}

    def critic_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        next_value = self.networks["value"](groups["value"], batch["next_obs"])
        target = td_target(batch, self.settings.gamma, next_value)
        values = self.networks["critic"](groups["critic"], batch["obs"], batch["actions"])
        loss = ensemble_squared_error(values, target)
        return loss, {"critic_loss": loss, "target_q_mean": target.mean()}
