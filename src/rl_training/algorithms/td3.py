"""TD3: Fujimoto et al., "Addressing Function Approximation Error in Actor-Critic Methods", 2018."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from rl_training.algorithms.base import Batch, Groups, Learner, Metrics, Noise, NoiseSpec, OffPolicySettings, Phase
from rl_training.algorithms.losses import ensemble_squared_error, td_target
from rl_training.config.fields import at_least, setting, within
from rl_training.core.specs import EnvSpec
from rl_training.models.mlp_td3 import MLPTD3Model


@dataclass(frozen=True)
class TD3Settings(OffPolicySettings):
    # Defaults: the authors' code (sfujim/TD3 TD3.py, main.py). Noise is in units of half the action range.
    learning_starts: int = setting(25_000, at_least(0))
    tau: float = setting(0.005, within(0, 1))
    exploration_noise: float = setting(0.1, at_least(0))
    policy_noise: float = setting(0.2, at_least(0))  # smooths the target over actions
    noise_clip: float = setting(0.5, at_least(0))
    policy_delay: int = setting(2, at_least(1))  # updates of the critics for each of the actor and the targets


def smoothed(action: Tensor, noise: Tensor, size: float, clip: float) -> Tensor:
    """The action with noise of at most `clip`, within the bounds of actions."""
    return (action + (size * noise).clamp(-clip, clip)).clamp(-1, 1)


class TD3(Learner):
    name = "td3"
    title = "Twin delayed deep deterministic policy gradient"
    settings_type = TD3Settings
    targets: ClassVar[Mapping[str, str]] = {"target_actor": "actor", "target_critic": "critic"}
    target_phase = 1  # the targets wait for the actor

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPTD3Model(spec.observation.size, spec.action.size, settings.hidden_sizes)

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"actor": model.actor, "critic": model.critic}  # type: ignore[dict-item]

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(("critic",), self.critic_loss), Phase(("actor",), self.actor_loss, self.settings.policy_delay))

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        return {"next_action": NoiseSpec("normal", (batch_size, self.action_dim))}

    def critic_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        settings, critic = self.settings, self.networks["critic"]
        policy_action = self.networks["actor"](groups["target_actor"], batch["next_obs"])
        next_action = smoothed(policy_action, noise["next_action"], settings.policy_noise, settings.noise_clip)
        next_q = critic(groups["target_critic"], batch["next_obs"], next_action).amin(0)
        target = td_target(batch, settings.gamma, next_q)
        loss = ensemble_squared_error(critic(groups["critic"], batch["obs"], batch["actions"]), target)
        return loss, {"critic_loss": loss, "target_q_mean": target.mean()}

    def actor_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        _, value = self.policy_value(groups, batch)
        loss = -value.mean()
        return loss, {"actor_loss": loss}

    def policy_value(self, groups: Groups, batch: Batch) -> tuple[Tensor, Tensor]:
        """The policy's actions, and what the first critic says of them: the second has no say."""
        action = self.networks["actor"](groups["actor"], batch["obs"])
        first = {name: stacked[:1] for name, stacked in groups["critic"].items()}
        return action, self.networks["critic"](first, batch["obs"], action)

    def greedy(self, groups: Groups, obs: Tensor) -> Tensor:
        return self.networks["actor"](groups["actor"], obs)  # type: ignore[no-any-return]

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        return (self.greedy(groups, obs) + amount * noise).clamp(-1, 1)

    def exploration(self, progress: float) -> float:
        return float(self.settings.exploration_noise)
