"""PPO: Schulman et al., "Proximal Policy Optimization Algorithms", 2017, with GAE (Schulman et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.actor_critic import (
    ActorCritic,
    ActorCriticNetworks,
    ActorCriticSettings,
    squared_error,
    weighted_terms,
)
from rl_training.algorithms.base import Batch, LossResult, Metrics, Phase
from rl_training.config.fields import above, setting
from rl_training.core.checks import require

STOP_FACTOR = 1.5  # an update stops above this multiple of `target_kl`, as in Stable-Baselines3
# The rate that adapts to the KL divergence, as in RSL-RL: by this factor, between these bounds.
RATE_FACTOR, LOWEST_RATE, HIGHEST_RATE = 1.5, 1e-5, 1e-2
ADAPTED = "constant, without a warm-up, where learning_rate_kl adapts the rate"


@dataclass(frozen=True)
class PPOSettings(ActorCriticSettings):
    # Defaults: Stable-Baselines3's PPO.
    clip_range: float = setting(0.2, above(0))  # the probability of an action changes by this share at most
    value_clip_range: float | None = setting(None, above(0))  # the value changes by this at most; null: any amount
    recompute_advantages: bool = setting(False)  # before every epoch, with the values learned so far
    target_kl: float | None = setting(None, above(0))  # a seed's update of a rollout stops at 1.5 times this divergence
    learning_rate_kl: float | None = setting(None, above(0))  # the learning rate adapts to this divergence; null: not

    def __post_init__(self) -> None:
        super().__post_init__()
        scheduled = self.learning_rate_schedule != "constant" or bool(self.learning_rate_warmup)
        require(self.learning_rate_kl is None or not scheduled, "learning_rate_schedule", ADAPTED)
        within = LOWEST_RATE <= self.learning_rate <= HIGHEST_RATE
        bounds = f"from {LOWEST_RATE} to {HIGHEST_RATE} with learning_rate_kl, got {self.learning_rate}"
        require(self.learning_rate_kl is None or within, "learning_rate", bounds)


class PPO(ActorCritic):
    name = "ppo"
    title = "Proximal policy optimisation, with masks, memory and every action space"
    settings_type = PPOSettings
    settings: PPOSettings
    run_only = ("stopped", "rate")

    @property
    def recompute_targets(self) -> bool:  # type: ignore[override]
        return self.settings.recompute_advantages

    def phases(self) -> tuple[Phase, ...]:
        controlled = self.settings.target_kl is not None or self.settings.learning_rate_kl is not None
        return tuple(replace(phase, per_seed=controlled) for phase in super().phases())

    def running(self) -> dict[str, Tensor]:
        own = {}
        if self.settings.target_kl is not None:
            own["stopped"] = torch.tensor(False)
        if self.settings.learning_rate_kl is not None:
            own["rate"] = torch.tensor(self.settings.learning_rate, dtype=torch.float64)
        return {**super().running(), **own}

    def learn(self, rollout: Any, progress: float, global_step: int) -> None:
        if self.settings.target_kl is not None:
            self.engine.set_running({"stopped": torch.zeros(len(self.seeds), dtype=torch.bool, device=self.device)})
        super().learn(rollout, progress, global_step)

    def value_term(self, values: Tensor, rows: Batch) -> Tensor:
        limit = self.settings.value_clip_range
        if limit is None:
            return super().value_term(values, rows)
        clipped = rows["values"] + (values - rows["values"]).clamp(-limit, limit)
        errors = [(one - rows["returns"]).square() for one in (values, clipped)]
        return torch.maximum(*errors).mean()

    def policy_term(self, logprobs: Tensor, rows: Batch) -> tuple[Tensor, Metrics]:
        return clipped_policy_term(logprobs, rows, self.settings.clip_range)

    def controlled(self, nets: ActorCriticNetworks, result: LossResult) -> LossResult:
        settings, kl = self.settings, result.metrics["approx_kl"].detach()
        running: dict[str, Tensor] = {}
        skip = rate = None
        metrics = dict(result.metrics)
        if settings.target_kl is not None:
            skip = nets.running["stopped"] | (kl > STOP_FACTOR * settings.target_kl)
            running["stopped"] = skip
            metrics["skipped"] = skip.float()
        if settings.learning_rate_kl is not None:
            rate = adapted_rate(nets.running["rate"], kl, settings.learning_rate_kl)
            running["rate"] = rate if skip is None else torch.where(skip, nets.running["rate"], rate)
            metrics["learning_rate"] = running["rate"].float()
        return result._replace(metrics=metrics, running=running, skip=skip, rate=rate)


def clipped_policy_term(logprobs: Tensor, rows: Batch, clip_range: float) -> tuple[Tensor, Metrics]:
    """The clipped surrogate objective as a loss, with the divergence from the policy that acted."""
    difference = logprobs - rows["logprobs"]
    ratio, advantages = difference.exp(), rows["advantages"]
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
    kl = (ratio - 1 - difference).mean()  # Schulman's estimate, never negative
    return loss, {"approx_kl": kl, "clip_fraction": ((ratio - 1).abs() > clip_range).float().mean()}


def adapted_rate(rate: Tensor, kl: Tensor, target: float) -> Tensor:
    """The learning rate after an update with this divergence: lower above twice the target, higher below half of it."""
    lower, higher = (rate / RATE_FACTOR).clamp_min(LOWEST_RATE), (rate * RATE_FACTOR).clamp_max(HIGHEST_RATE)
    return torch.where(kl > 2 * target, lower, torch.where(kl < target / 2, higher, rate))


def ppo_loss(values: Batch) -> Metrics:
    """From `logprobs, old_logprobs, advantages, values, returns, entropy`: the terms of the loss with the defaults."""
    rows = {"logprobs": values["old_logprobs"], "advantages": values["advantages"]}
    policy_loss, metrics = clipped_policy_term(values["logprobs"], rows, PPOSettings.clip_range)
    value_loss = squared_error(values["values"], values)
    return {**weighted_terms(PPOSettings(), policy_loss, value_loss, values["entropy"].mean()), **metrics}
