"""CQL: Kumar et al., "Conservative Q-Learning for Offline Reinforcement Learning", 2020: SAC with a penalty on
out-of-distribution actions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from rl_training.algorithms.base import Batch, LossResult, Noise, NoiseSpec, Params, Phase
from rl_training.algorithms.loss_functions import cql_loss as cql_loss
from rl_training.algorithms.losses import ensemble_squared_error, td_target
from rl_training.algorithms.offline import OfflineLearner
from rl_training.algorithms.sac import SAC, Critics, SACNetworks, SACSettings
from rl_training.config.fields import above, at_least, setting
from rl_training.config.offline_settings import OfflineSettings
from rl_training.core.checks import require
from rl_training.engine.gradients import map_tensors

MAX_MULTIPLIER = 1e6
MAX_SAMPLES = 1000  # of each kind, for every row of a batch
# Locomotion and Adroit: CORL's configs. AntMaze: the authors' (rewards (r - 0.5) * 4), with CORL's max-backup.
BY_DOMAIN: dict[str, dict[str, Any]] = {
    "locomotion": {"normalize_observations": True},
    "antmaze": {"cql_alpha": 5.0, "lagrange_threshold": 5.0, "max_backup": True, "actor_learning_rate": 1e-4,
                "reward_scale": 4.0, "reward_shift": -2.0},
    "adroit": {"cql_alpha": 1.0, "actor_learning_rate": 1e-4},
}  # fmt: skip


@dataclass(frozen=True)
class CQLSettings(OfflineSettings, SACSettings):
    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp",)

    # Defaults: the authors' code for locomotion as CORL runs it (cql_alpha 10, no Lagrange, 3 layers, slow actor), on
    # SAC's networks: CORL initialises critics orthogonally, and its actor's log-std one lower.
    hidden_sizes: tuple[int, ...] = setting((256, 256, 256))
    actor_learning_rate: float | None = setting(3e-5, above(0))  # the temperature's too; null: as the critics
    cql_alpha: float = setting(10.0, above(0))  # weight of the conservative penalty
    num_cql_samples: int = setting(10, at_least(1, MAX_SAMPLES))  # actions of each of three kinds in the penalty
    cql_temperature: float = setting(1.0, above(0))  # of the log-sum-exp in the penalty
    lagrange_threshold: float | None = setting(None, above(0))  # if set, the penalty's weight is tuned to keep this gap
    bc_updates: int = setting(0, at_least(0))  # updates at the start in which the actor clones the data
    backup_entropy: bool = False  # true: SAC's target; false: the authors', without entropy
    max_backup: bool = False  # the maximum over `num_cql_samples` next actions, for each critic

    def __post_init__(self) -> None:
        super().__post_init__()
        # The best of several actions has no log-density.
        require(not (self.backup_entropy and self.max_backup), "backup_entropy", "false where max_backup is true")

    @property
    def network_rows(self) -> int:
        return self.batch_size * (1 + 3 * self.num_cql_samples)


def conservative_gap(samples: Tensor, data: Tensor, temperature: float) -> Tensor:
    """(members,): the log-sum-exp over (members, samples, batch) minus the values (members, batch) of the data."""
    return (temperature * (samples / temperature).logsumexp(1) - data).mean(-1)


class CQLNetworks(SACNetworks):
    multiplier: Params

    @property
    def penalty_weight(self) -> Tensor:
        """The tuned weight of the penalty (Lagrange)."""
        return self.multiplier["log"].exp().clamp(max=MAX_MULTIPLIER)


def values_of(critic: Critics, obs: Tensor, actions: Tensor) -> Tensor:
    """(members, samples, batch): values of several actions (samples, batch, action) per observation."""
    samples, batch = actions.shape[:2]
    rows = map_tensors(obs, lambda one: one.expand(samples, *one.shape).flatten(0, 1))
    values: Tensor = critic(rows, actions.reshape(samples * batch, -1)).unflatten(1, (samples, batch))
    return values


class CQL(OfflineLearner, SAC):
    name = "cql"
    title = "Conservative Q-learning"
    by_domain = BY_DOMAIN
    settings_type = CQLSettings
    networks_type = CQLNetworks
    settings: CQLSettings

    def scalars(self) -> dict[str, dict[str, float]]:
        tuned = self.settings.lagrange_threshold is not None
        return {**super().scalars(), **({"multiplier": {"log": 0.0}} if tuned else {})}

    def phases(self) -> tuple[Phase, ...]:
        critic, policy = super().phases()
        if self.settings.lagrange_threshold is not None:
            critic = replace(critic, groups=("critic", "multiplier"))
        return critic, replace(policy, rate=self.actor_rate, counted=True)

    def actor_rate(self, progress: float) -> float:
        own, common = self.settings.actor_learning_rate, self.rate(progress)
        return common if own is None else common * own / self.settings.learning_rate

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        many = (self.settings.num_cql_samples, batch_size, self.action_dim)
        kinds = {"uniform": "uniform", "current_actions": "normal", "next_actions": "normal"}
        more = {"backup_actions": "normal"} if self.settings.max_backup else {}
        return super().noise(batch_size) | {name: NoiseSpec(kind, many) for name, kind in {**kinds, **more}.items()}

    def critic_loss(self, nets: CQLNetworks, batch: Batch, noise: Noise) -> LossResult:  # type: ignore[override]
        target = td_target(batch, self.settings.gamma, self.next_state_value(nets, batch, noise))
        values = nets.critic(batch["obs"], batch["actions"])
        bellman_error = ensemble_squared_error(values, target)
        gaps = conservative_gap(self.sampled_values(nets, batch, noise), values, self.settings.cql_temperature)
        penalty = self.settings.cql_alpha * gaps
        metrics = {"target_q_mean": target.mean(), "cql_penalty": penalty.sum(), "data_q_mean": values.mean()}
        if self.settings.lagrange_threshold is None:
            loss = bellman_error + penalty.sum()
            return LossResult(loss, {"critic_loss": loss, **metrics})
        excess, multiplier = penalty - self.settings.lagrange_threshold, nets.penalty_weight
        loss = bellman_error + (multiplier.detach() * excess).sum()
        multiplier_loss = -(multiplier * excess.detach()).mean()
        return LossResult(loss + multiplier_loss, {"critic_loss": loss, **metrics, "cql_multiplier": multiplier})

    def next_state_value(self, nets: SACNetworks, batch: Batch, noise: Noise) -> Tensor:
        next_obs = batch["next_obs"]
        if self.settings.max_backup:  # the maximum over actions comes before the minimum over critics
            actions, _ = nets.actor(next_obs, noise["backup_actions"])
            return values_of(nets.target.critic, next_obs, actions).amax(1).amin(0)
        action, logprob = nets.actor(next_obs, noise["next_action"])
        value = nets.target.critic(next_obs, action).amin(0)
        return value - nets.alpha * logprob if self.settings.backup_entropy else value

    def sampled_values(self, nets: SACNetworks, batch: Batch, noise: Noise) -> Tensor:
        """(members, 3 * samples, batch): Q(s, a) minus the log-density of the distribution that `a` was drawn from."""
        uniform = self.action_spec.from_uniforms(noise["uniform"])
        current, current_logprob = nets.actor(batch["obs"], noise["current_actions"])
        following, following_logprob = nets.actor(batch["next_obs"], noise["next_actions"])
        uniform_logprob = torch.full_like(current_logprob, -self.action_dim * math.log(2))
        actions = torch.stack((uniform, current, following)).detach()
        logprobs = torch.stack((uniform_logprob, current_logprob, following_logprob)).detach()
        value = partial(values_of, nets.critic, batch["obs"])
        # On a CPU one kind of action at a time fits the cache; a GPU evaluates the three kinds together.
        values = vmap(value)(actions) if actions.is_cuda else torch.stack([value(kind) for kind in actions])
        return (values - logprobs.unsqueeze(1)).transpose(0, 1).flatten(1, 2)

    def policy_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        action, logprob = nets.actor(batch["obs"], noise["action"])
        value = self.policy_value(nets.critic(batch["obs"], action))
        if self.settings.bc_updates:  # behaviour cloning replaces the critics at the start
            _, recorded_logprob = nets.actor(batch["obs"], None, batch["actions"])
            value = torch.where(batch["update"] <= self.settings.bc_updates, recorded_logprob, value)
        return self.policy_result(nets, logprob, value)
