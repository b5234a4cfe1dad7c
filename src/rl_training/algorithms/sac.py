"""SAC: Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (with the tuned temperature)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Batch, Groups, Learner, Metrics, Noise, NoiseSpec, OffPolicySettings, Phase
from rl_training.algorithms.losses import as_rows, ensemble_squared_error, td_target
from rl_training.config.fields import at_least, setting, within
from rl_training.core.specs import EnvSpec
from rl_training.engine.groups import Params
from rl_training.models.mlp_sac import MLPSACModel


@dataclass(frozen=True)
class SACSettings(OffPolicySettings):
    # Defaults: Stable-Baselines3 sac.py (the paper's table, with the tuned temperature).
    tau: float = setting(0.005, within(0, 1))
    alpha: float | Literal["auto"] = setting("auto", at_least(0))  # entropy temperature
    initial_alpha: float = setting(1.0, at_least(1e-8))  # where a tuned temperature starts
    target_entropy: float | Literal["auto"] = setting("auto")  # auto: minus the number of action dimensions
    num_critics: int = setting(2, at_least(1))


def actor_term(alpha: Tensor | float, logprobs: Tensor, q_value: Tensor) -> tuple[Tensor, Tensor]:
    """The policy's loss and its entropy part."""
    entropy_term = (alpha * logprobs).mean()
    return entropy_term - q_value.mean(), entropy_term


def soft_losses(critic_loss: Tensor, target: Tensor, q_value: Tensor, values: Mapping[str, Any]) -> Metrics:
    """What `sac_loss` and its variants return, from their own critic loss and value of the sampled actions."""
    actor_loss, entropy_term = actor_term(values["alpha"], values["sampled_logprobs"], q_value)
    return {
        "critic_loss": critic_loss,
        "actor_loss": actor_loss,
        "target_q_mean": target.mean(),
        "entropy_term": entropy_term,
    }


def sac_loss(values: Mapping[str, Any]) -> Metrics:
    """From `q1_values, q2_values, target_q_values, sampled_logprobs, sampled_q1, sampled_q2, alpha`, all computed."""
    values = as_rows(values)
    target = values["target_q_values"]
    critic_loss = ensemble_squared_error(torch.stack([values["q1_values"], values["q2_values"]]), target)
    return soft_losses(critic_loss, target, torch.minimum(values["sampled_q1"], values["sampled_q2"]), values)


class SAC(Learner):
    name = "sac"
    title = "Soft actor-critic with a tuned or fixed temperature and any number of critics"
    settings_type = SACSettings
    targets: ClassVar[Mapping[str, str]] = {"target": "critic"}

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPSACModel(spec.observation.size, spec.action.size, settings.hidden_sizes, settings.num_critics)

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"actor": model.actor, "critic": model.critic}  # type: ignore[dict-item]

    def scalars(self) -> dict[str, dict[str, float]]:
        alpha = self.settings.initial_alpha if self.settings.alpha == "auto" else self.settings.alpha
        return {"temperature": {"log_alpha": math.log(alpha) if alpha > 0 else -math.inf}}

    def phases(self) -> tuple[Phase, ...]:
        policy_groups = ("actor", "temperature") if self.settings.alpha == "auto" else ("actor",)
        return (Phase(("critic",), self.critic_loss), Phase(policy_groups, self.policy_loss, self.policy_every))

    @property
    def policy_every(self) -> int:
        """Updates of the critics for each update of the actor and the temperature."""
        return 1

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        shape = (batch_size, self.action_dim)
        return {"next_action": NoiseSpec("normal", shape), "action": NoiseSpec("normal", shape)}

    def critic_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        alpha = groups["temperature"]["log_alpha"].exp()
        # The current policy acts at the next state; only the critics have target copies.
        next_action, logprob = self.networks["actor"](groups["actor"], batch["next_obs"], noise["next_action"])
        next_value = self.next_value(groups["target"], batch["next_obs"], next_action, noise)
        entropy_bonus = (alpha * logprob).view(-1, *(1,) * (next_value.ndim - 1))
        target = td_target(batch, self.settings.gamma, next_value - entropy_bonus)
        loss = self.critic_term(self.networks["critic"](groups["critic"], batch["obs"], batch["actions"]), target)
        return loss, {"critic_loss": loss, "target_q_mean": target.mean()}

    def policy_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        action, logprob = self.networks["actor"](groups["actor"], batch["obs"], noise["action"])
        q_value = self.action_value(self.networks["critic"](groups["critic"], batch["obs"], action))
        return self.policy_terms(groups, logprob, q_value)

    def policy_terms(self, groups: Groups, logprob: Tensor, q_value: Tensor) -> tuple[Tensor, Metrics]:
        """The actor's loss, and the temperature's on the same actions."""
        log_alpha = groups["temperature"]["log_alpha"]
        alpha = log_alpha.exp().detach()
        loss, entropy_term = actor_term(alpha, logprob, q_value)
        metrics = {"actor_loss": loss, "entropy_term": entropy_term, "ent_coef": alpha, "entropy": -logprob.mean()}
        if self.settings.alpha == "auto":
            loss = loss - (log_alpha * (logprob.detach() + self.target_entropy)).mean()
        return loss, metrics

    # --- where the variants differ -------------------------------------------------------------------------------
    def next_value(self, target: Params, next_obs: Tensor, next_action: Tensor, noise: Noise) -> Tensor:
        """(batch, ...): what the target critics say of the next action."""
        return self.networks["critic"](target, next_obs, next_action).amin(0)  # type: ignore[no-any-return]

    def critic_term(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The loss of the critics' outputs (members, batch, ...) against the target (batch, ...)."""
        return ensemble_squared_error(predicted, target)

    def action_value(self, predicted: Tensor) -> Tensor:
        """(batch,): what the actor maximises, from the critics' outputs (members, batch, ...)."""
        return predicted.amin(0)

    @property
    def target_entropy(self) -> float:
        chosen = self.settings.target_entropy
        return -float(self.action_dim) if chosen == "auto" else float(chosen)

    @property
    def alpha(self) -> float:
        """The temperature in use (the first seed's)."""
        return float(self.engine.seed_groups(0)["temperature"]["log_alpha"].exp())

    def greedy(self, groups: Groups, obs: Tensor) -> Tensor:
        return self.networks["actor"](groups["actor"], obs, None)[0]  # type: ignore[no-any-return]

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        return self.networks["actor"](groups["actor"], obs, noise)[0]  # type: ignore[no-any-return]
