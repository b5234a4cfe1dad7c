"""SAC: Haarnoja et al., "Soft Actor-Critic Algorithms and Applications", 2018 (with the tuned temperature)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from rl_training.algorithms.base import (
    Act,
    Batch,
    BoundNetwork,
    Learner,
    LossResult,
    Networks,
    Noise,
    NoiseSpec,
    Params,
    Phase,
    Polyak,
    ReplaySettings,
)
from rl_training.algorithms.definition import ANY_OBSERVATION
from rl_training.algorithms.loss_functions import sac_loss as sac_loss
from rl_training.algorithms.losses import ensemble_squared_error, soft_policy_term, td_target
from rl_training.config.fields import at_least, closed_interval, one_of, setting
from rl_training.config.network import check_sizes
from rl_training.config.settings import PRECISIONS, HindsightSettings
from rl_training.core.specs import EnvSpec, Kind
from rl_training.models.features import network_input
from rl_training.models.mlp_sac import MLPSACModel

Policy = BoundNetwork[tuple[Tensor, Tensor]]  # (obs, noise) -> actions, log-densities
Critics = BoundNetwork[Tensor]  # (obs, action) -> (members, batch, ...)


@dataclass(frozen=True)
class SACSettings(ReplaySettings):
    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp", "simba")
    # Defaults: Stable-Baselines3 sac.py (the paper's table, with the tuned temperature).
    tau: float = setting(0.005, closed_interval(0, 1))  # share of a network that its target takes over at each update
    alpha: float | Literal["auto"] = setting("auto", at_least(0))  # entropy temperature; auto: tuned
    initial_alpha: float = setting(1.0, at_least(1e-8))  # the initial value of a tuned temperature
    target_entropy: float | Literal["auto"] = setting("auto")  # of a tuned one; auto: minus the action dimensions
    num_critics: int = setting(2, at_least(1))  # critics; the smallest value counts
    precision: str = setting("float32", one_of(*PRECISIONS))  # of matrix products and convolutions
    her: HindsightSettings | None = None  # relabel goals in hindsight (Andrychowicz et al. 2017); null: never


@dataclass(frozen=True)
class SizedCriticSettings(SACSettings):
    """The settings of SAC's variants whose critics have sizes of their own."""

    critic_hidden_sizes: tuple[int, ...] | None = setting(None)  # of the critics; null: `hidden_sizes`

    @property
    def critic_sizes(self) -> tuple[int, ...]:
        return self.hidden_sizes if self.critic_hidden_sizes is None else self.critic_hidden_sizes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes("critic_hidden_sizes", self.critic_hidden_sizes or ())


class SACNetworks(Networks):
    actor: Policy
    critic: Critics
    temperature: Params

    @property
    def log_alpha(self) -> Tensor:
        return self.temperature["log_alpha"]

    @property
    def alpha(self) -> Tensor:
        return self.log_alpha.exp()

    def policy(self, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Actions and their log-densities; without noise, the most likely actions."""
        return self.actor(obs, noise)


class SAC(Learner):
    name = "sac"
    title = "Soft actor-critic with a tuned or fixed temperature and any number of critics"
    observations: ClassVar[tuple[Kind, ...]] = ANY_OBSERVATION
    settings_type = SACSettings
    networks_type = SACNetworks
    settings: SACSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        inputs = network_input(spec.observation, settings.network)
        layers = settings.actor_layers, settings.num_critics, settings.critic_layers
        return MLPSACModel(inputs, spec.action.size, *layers)

    def modules(self, model: Any) -> dict[str, nn.Module]:
        return {"actor": model.actor, "critic": model.critic}

    def scalars(self) -> dict[str, dict[str, float]]:
        alpha = self.settings.initial_alpha if self.settings.alpha == "auto" else self.settings.alpha
        return {"temperature": {"log_alpha": math.log(alpha) if alpha > 0 else -math.inf}}

    def phases(self) -> tuple[Phase, ...]:
        policy_groups = ("actor", "temperature") if self.settings.alpha == "auto" else ("actor",)
        return Phase("critic", ("critic",), self.critic_loss), Phase("policy", policy_groups, self.policy_loss)

    def target_update(self) -> Polyak:
        return Polyak({"target_critic": "critic"}, self.settings.tau, after="critic")

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        shape = (batch_size, self.action_dim)
        return {"next_action": NoiseSpec("normal", shape), "action": NoiseSpec("normal", shape)}

    def critic_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        # The next action is the current policy's: only the critics have target networks.
        next_action, logprob = nets.policy(batch["next_obs"], noise["next_action"])
        next_value = self.next_value(nets.target.critic, batch["next_obs"], next_action, noise)
        entropy_penalty = (nets.alpha * logprob).view(-1, *(1,) * (next_value.ndim - 1))
        target = td_target(batch, self.settings.gamma, next_value - entropy_penalty)
        loss = self.critic_error(nets.critic(batch["obs"], batch["actions"]), target)
        return LossResult(loss, {"critic_loss": loss, "target_q_mean": target.mean()})

    def policy_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        action, logprob = nets.policy(batch["obs"], noise["action"])
        return self.policy_result(nets, logprob, self.policy_value(nets.critic(batch["obs"], action)))

    def policy_result(self, nets: SACNetworks, logprob: Tensor, value: Tensor) -> LossResult:
        """The actor's loss, and the temperature's on the same actions."""
        alpha = nets.alpha.detach()
        loss, entropy_term = soft_policy_term(alpha, logprob, value)
        metrics = {"actor_loss": loss, "entropy_term": entropy_term, "ent_coef": alpha, "entropy": -logprob.mean()}
        if self.settings.alpha == "auto":
            loss = loss - (nets.log_alpha * (logprob.detach() + self.target_entropy)).mean()
        return LossResult(loss, metrics)

    # --- overridden by variants ----------------------------------------------------------------------------------
    def next_value(self, critic: Critics, next_obs: Tensor, next_action: Tensor, noise: Noise) -> Tensor:
        """(batch, ...): the value of the next action according to the target critics."""
        return critic(next_obs, next_action).amin(0)

    def critic_error(self, predicted: Tensor, target: Tensor) -> Tensor:
        """The loss of the critics' outputs (members, batch, ...) against the target (batch, ...)."""
        return ensemble_squared_error(predicted, target)

    def policy_value(self, predicted: Tensor) -> Tensor:
        """(batch,): the value that the actor maximises, from the critics' outputs (members, batch, ...)."""
        return predicted.amin(0)

    @property
    def target_entropy(self) -> float:
        chosen = self.settings.target_entropy
        return -float(self.action_dim) if chosen == "auto" else float(chosen)

    @property
    def alpha(self) -> float:
        """The temperature in use (the first seed's)."""
        return float(self.nets().alpha)

    def greedy(self, nets: SACNetworks, obs: Tensor) -> Act:
        return Act(nets.policy(obs, None)[0])

    def explore(self, nets: SACNetworks, obs: Tensor, noise: Tensor, amount: Tensor) -> Act:
        return Act(nets.policy(obs, noise)[0])
