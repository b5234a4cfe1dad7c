"""A2C: the synchronous form of Mnih et al., "Asynchronous Methods for Deep Reinforcement Learning", 2016."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from rl_training.algorithms.actor_critic import ActorCritic, ActorCriticSettings, squared_error, weighted_terms
from rl_training.algorithms.base import Batch, Metrics
from rl_training.config.fields import above, at_least, closed_interval, one_of, setting
from rl_training.config.network import OptimizerSettings


@dataclass(frozen=True)
class A2CSettings(ActorCriticSettings):
    # Defaults: Stable-Baselines3's A2C. One update on every rollout, with all its transitions.
    batch_size: int = setting(0, at_least(0), init=False)
    epochs: int = setting(1, at_least(1), init=False)
    rollout_steps: int = setting(5, at_least(1))
    learning_rate: float = setting(7e-4, above(0))
    gae_lambda: float = setting(1.0, closed_interval(0, 1))
    normalize_advantages: str = setting("off", one_of("minibatch", "batch", "off"))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings("RMSprop"))
    sequence_length: int = setting(5, at_least(1))


class A2C(ActorCritic):
    name = "a2c"
    title = "Advantage actor-critic: one update on every rollout"
    settings_type = A2CSettings
    settings: A2CSettings

    def policy_term(self, logprobs: Tensor, rows: Batch) -> tuple[Tensor, Metrics]:
        return policy_gradient_term(logprobs, rows), {}


def policy_gradient_term(logprobs: Tensor, rows: Batch) -> Tensor:
    """The policy gradient as a loss."""
    return -(rows["advantages"] * logprobs).mean()


def a2c_loss(values: Batch) -> Metrics:
    """From `logprobs, advantages, values, returns, entropy`: the terms of the loss with the defaults."""
    policy_loss = policy_gradient_term(values["logprobs"], values)
    value_loss = squared_error(values["values"], values)
    return weighted_terms(A2CSettings(), policy_loss, value_loss, values["entropy"].mean())
