"""TD3: Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", 2018."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

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
    Phase,
    Polyak,
    ReplaySettings,
)
from rl_training.algorithms.definition import ANY_OBSERVATION
from rl_training.algorithms.losses import ensemble_squared_error, td_target
from rl_training.config.fields import at_least, closed_interval, setting
from rl_training.config.settings import HindsightSettings
from rl_training.core.specs import EnvSpec, Kind
from rl_training.models.features import network_input
from rl_training.models.mlp_td3 import MLPTD3Model


@dataclass(frozen=True)
class TD3Settings(ReplaySettings):
    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp", "simba")

    # Defaults: the authors' code (sfujim/TD3 TD3.py, main.py). Noise is in units of half the action range.
    learning_starts: int = setting(25_000, at_least(0))
    tau: float = setting(0.005, closed_interval(0, 1))  # share of a network that its target takes over at each update
    exploration_noise: float = setting(0.1, at_least(0))  # standard deviation of the noise added to actions
    policy_noise: float = setting(0.2, at_least(0))  # standard deviation of the noise that smooths the target policy
    noise_clip: float = setting(0.5, at_least(0))  # bound of that noise
    policy_delay: int = setting(2, at_least(1))  # updates of the critics for each of the actor and the targets
    her: HindsightSettings | None = None  # relabel goals in hindsight (Andrychowicz et al. 2017); null: never


def smoothed(action: Tensor, noise: Tensor, size: float, clip: float) -> Tensor:
    """The action plus noise clipped to `clip`, clamped to the bounds of actions."""
    return (action + (size * noise).clamp(-clip, clip)).clamp(-1, 1)


class TD3Networks(Networks):
    actor: BoundNetwork[Tensor]  # obs -> action
    critic: BoundNetwork[Tensor]  # (obs, action) -> (members, batch)


class TD3(Learner):
    name = "td3"
    title = "Twin delayed deep deterministic policy gradient"
    observations: ClassVar[tuple[Kind, ...]] = ANY_OBSERVATION
    settings_type = TD3Settings
    networks_type = TD3Networks
    settings: TD3Settings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        inputs = network_input(spec.observation, settings.network)
        return MLPTD3Model(inputs, spec.action.size, settings.actor_layers, settings.critic_layers)

    def modules(self, model: Any) -> dict[str, nn.Module]:
        return {"actor": model.actor, "critic": model.critic}

    def phases(self) -> tuple[Phase, ...]:
        delay = self.settings.policy_delay
        return Phase("critic", ("critic",), self.critic_loss), Phase("actor", ("actor",), self.actor_loss, every=delay)

    def target_update(self) -> Polyak:
        # Delayed: the targets are updated with the actor.
        return Polyak({"target_actor": "actor", "target_critic": "critic"}, self.settings.tau, after="actor")

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        return {"next_action": NoiseSpec("normal", (batch_size, self.action_dim))}

    def critic_loss(self, nets: TD3Networks, batch: Batch, noise: Noise) -> LossResult:
        settings, next_obs = self.settings, batch["next_obs"]
        policy_action = nets.target.actor(next_obs)
        next_action = smoothed(policy_action, noise["next_action"], settings.policy_noise, settings.noise_clip)
        target = td_target(batch, settings.gamma, nets.target.critic(next_obs, next_action).amin(0))
        loss = ensemble_squared_error(nets.critic(batch["obs"], batch["actions"]), target)
        return LossResult(loss, {"critic_loss": loss, "target_q_mean": target.mean()})

    def actor_loss(self, nets: TD3Networks, batch: Batch, noise: Noise) -> LossResult:
        _, value = self.policy_value(nets, batch)
        loss = -value.mean()
        return LossResult(loss, {"actor_loss": loss})

    def policy_value(self, nets: TD3Networks, batch: Batch) -> tuple[Tensor, Tensor]:
        """The policy's actions and their values; TD3 uses only Q1 here."""
        action = nets.actor(batch["obs"])
        return action, nets.critic.members(0)(batch["obs"], action)

    def greedy(self, nets: TD3Networks, obs: Tensor) -> Act:
        return Act(nets.actor(obs))

    def explore(self, nets: TD3Networks, obs: Tensor, noise: Tensor, amount: Tensor) -> Act:
        return Act((nets.actor(obs) + amount * noise).clamp(-1, 1))

    def exploration(self, progress: float) -> float:
        return self.settings.exploration_noise
