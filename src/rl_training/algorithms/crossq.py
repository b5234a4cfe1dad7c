"""CrossQ: Bhatt et al., "CrossQ: Batch Normalization in Deep Reinforcement Learning for Greater Sample Efficiency and
Simplicity", 2024."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from torch import nn

from rl_training.algorithms.base import Adam, Batch, LossResult, Noise, Phase
from rl_training.algorithms.loss_functions import crossq_loss as crossq_loss
from rl_training.algorithms.losses import joined_pass, td_target
from rl_training.algorithms.sac import SAC, SACNetworks, SizedCriticSettings
from rl_training.config.fields import at_least, left_open_interval, setting
from rl_training.config.network import OptimizerSettings
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_crossq import MLPCrossQModel


@dataclass(frozen=True)
class CrossQSettings(SizedCriticSettings):
    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp",)
    # Defaults: sb3-contrib crossq.py and the authors' train.py, whose critics are twice as wide (2,048).
    batch_size: int = setting(256, at_least(2))  # batch statistics need two rows
    learning_rate: float = setting(1e-3)
    # of the networks; the temperature has Adam with its usual betas
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(betas=(0.5, 0.999)))
    critic_hidden_sizes: tuple[int, ...] | None = setting((1024, 1024))  # of the critics; null: `hidden_sizes`
    policy_delay: int = setting(3, at_least(1))  # updates of the critics for one of the policy
    batch_norm_momentum: float = setting(0.01, left_open_interval(0, 1))  # share of a batch in the running statistics
    renorm_warmup: int = setting(100_000, at_least(0))  # a network's updates with plain batch normalisation
    tau: ClassVar[float] = 1.0  # type: ignore[misc]  # no setting: there are no target networks


class CrossQ(SAC):
    """SAC without target networks: batch normalisation over current and next rows together keeps critics stable."""

    name = "crossq"
    title = "CrossQ: batch renormalisation instead of target networks"
    settings_type = CrossQSettings
    settings: CrossQSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPCrossQModel(
            network_input(spec.observation, settings.network),
            spec.action.size,
            settings.actor_layers,
            settings.num_critics,
            settings.critic_layers,
            settings.batch_norm_momentum,
            settings.renorm_warmup,
        )

    def phases(self) -> tuple[Phase, ...]:
        critic, policy = super().phases()
        policy = replace(policy, groups=("actor",), every=self.settings.policy_delay)
        if self.settings.alpha != "auto":
            return critic, policy
        adam = Adam(eps=self.settings.adam_eps, max_grad_norm=self.settings.max_grad_norm)
        temperature = Phase("temperature", ("temperature",), self.temperature_loss, policy.every, optimizer=adam)
        return critic, policy, temperature

    def target_update(self) -> None:  # type: ignore[override]
        return None

    def critic_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        next_action, logprob = nets.policy(batch["next_obs"], noise["next_action"])
        current, following = joined_pass(
            nets.critic, (batch["obs"], batch["actions"]), (batch["next_obs"], next_action)
        )
        target = td_target(batch, self.settings.gamma, following.amin(0) - nets.alpha * logprob)
        loss = self.critic_error(current, target)
        return LossResult(loss, {"critic_loss": loss, "target_q_mean": target.mean()})

    def policy_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        action, logprob = nets.policy(batch["obs"], noise["action"])
        value = self.policy_value(nets.critic(batch["obs"], action))
        return self.policy_result(nets, logprob, value)._replace(carried={"logprob": logprob.detach()})

    def temperature_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        loss = -(nets.log_alpha * (batch["logprob"] + self.target_entropy)).mean()
        return LossResult(loss, {"ent_coef_loss": loss})
