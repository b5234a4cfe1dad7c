"""DrQ-v2: Yarats et al., "Mastering Visual Continuous Control: Improved Data-Augmented Reinforcement Learning",
2021."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
)
from rl_training.algorithms.loss_functions import drqv2_loss as drqv2_loss
from rl_training.algorithms.losses import deterministic_policy_term, ensemble_squared_error, td_target
from rl_training.config.fields import above, at_least, setting
from rl_training.config.settings import ImageSettings
from rl_training.core.results import UpdateResult
from rl_training.core.schedules import linear
from rl_training.core.specs import EnvSpec
from rl_training.engine.phases import Source
from rl_training.models.augment import random_shift
from rl_training.models.cnn.drqv2 import CNNDrQv2Model
from rl_training.models.features import Observed, network_input


@dataclass(frozen=True)
class DrQv2Settings(ImageSettings):
    # Defaults: the authors' code (facebookresearch/drqv2 cfgs/config.yaml, cfgs/task/easy.yaml).
    learning_starts: int = setting(2000, at_least(0))
    train_frequency: int = setting(2, at_least(1))
    learning_rate: float = setting(1e-4, above(0))
    n_step: int = setting(3, at_least(1))  # rewards in a return before it is bootstrapped
    # The standard deviation of the noise, in units of half the action range, decreases linearly over `std_steps` agent
    # steps (a repeated action counts once): 100,000 for the paper's easy tasks, 500,000 and 2,000,000 for the others.
    std_start: float = setting(1.0, at_least(0))  # standard deviation of the noise at the start
    std_end: float = setting(0.1, at_least(0))  # standard deviation of the noise after `std_steps`
    std_steps: int = setting(100_000, at_least(1))  # agent steps over which it falls
    noise_clip: float = setting(0.3, at_least(0))  # bound of the noise in the losses, not in the environment


def noisy_action(mean: Tensor, noise: Tensor) -> Tensor:
    """`mean + noise` clamped to the bounds of actions, with a straight-through gradient."""
    action = mean + noise
    return action + (action.clamp(-1, 1) - action).detach()


class DrQv2Networks(Networks):
    encoder: BoundNetwork[Tensor]  # images -> features
    actor: BoundNetwork[Tensor]  # features -> action
    critic: BoundNetwork[Tensor]  # (features, action) -> (members, batch)
    schedule: Params

    @property
    def std(self) -> Tensor:
        """The standard deviation of the noise at the newest update."""
        return self.schedule["std"]


class DrQv2(Learner):
    name = "drqv2"
    title = "DrQ-v2: deterministic actor from pixels, n-step returns, scheduled noise"
    observations = ("image",)
    settings_type = DrQv2Settings
    networks_type = DrQv2Networks
    settings: DrQv2Settings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        own = network_input(spec.observation, settings.network)
        encoder = own if isinstance(own, Observed) else "drq"
        return CNNDrQv2Model(spec.observation.shape, spec.action.size, encoder=encoder, **settings.network_sizes())

    def modules(self, model: Any) -> dict[str, nn.Module]:
        return {"encoder": model.encoder, "critic": model.critic, "actor": model.actor}

    def scalars(self) -> dict[str, dict[str, float]]:
        return {"schedule": {"std": self.settings.std_start}}

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("critic", ("encoder", "critic"), self.critic_loss),
            Phase("actor", ("actor",), self.actor_loss),
        )

    def target_update(self) -> Polyak:
        return Polyak({"target_critic": "critic"}, self.settings.tau, after="critic")  # the encoder has no target

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        shift, action = NoiseSpec("uniform", (batch_size, 2)), NoiseSpec("normal", (batch_size, self.action_dim))
        return {"shift": shift, "next_shift": shift, "action": action, "next_action": action}

    def critic_loss(self, nets: DrQv2Networks, batch: Batch, noise: Noise) -> LossResult:
        pad = self.settings.augmentation_pad
        next_features = nets.encoder.detached()(random_shift(batch["next_obs"], noise["next_shift"], pad))
        next_action = self.smoothed_action(nets, next_features, noise["next_action"])
        next_q = nets.target.critic(next_features, next_action).amin(0)
        target = td_target(batch, self.settings.gamma, next_q)
        features = nets.encoder(random_shift(batch["obs"], noise["shift"], pad))
        loss = ensemble_squared_error(nets.critic(features, batch["actions"]), target)
        metrics = {"critic_loss": loss, "target_q_mean": target.mean()}
        return LossResult(loss, metrics, carried={"features": features.detach()})

    def actor_loss(self, nets: DrQv2Networks, batch: Batch, noise: Noise) -> LossResult:
        features = batch["features"]  # from the critics' loss, before its step, as in the authors' code
        action = self.smoothed_action(nets, features, noise["action"])
        loss = deterministic_policy_term(nets.critic(features, action))
        return LossResult(loss, {"actor_loss": loss})

    def smoothed_action(self, nets: DrQv2Networks, features: Tensor, noise: Tensor) -> Tensor:
        """The policy's action with the clipped noise of the schedule."""
        clip = self.settings.noise_clip
        return noisy_action(nets.actor(features), (nets.std * noise).clamp(-clip, clip))

    def greedy(self, nets: DrQv2Networks, obs: Tensor) -> Act:
        return Act(nets.actor(nets.encoder(obs)))

    def explore(self, nets: DrQv2Networks, obs: Tensor, noise: Tensor, amount: Tensor) -> Act:
        # The value at the newest update, which is saved with the agent, not that of a run's progress.
        return Act(noisy_action(self.greedy(nets, obs).action, nets.std * noise))

    # --- the schedule ----------------------------------------------------------------------------------------------
    def exploration(self, progress: float) -> float:
        return self.std_at(self.last_step)

    def std_at(self, step: int) -> float:
        return linear(self.settings.std_start, self.settings.std_end, step / self.settings.std_steps)

    def set_std(self, step: int) -> None:
        self.engine.fill("schedule", "std", self.std_at(step))

    def train(self, source: Source, count: int, global_step: int) -> None:
        self.set_std(global_step)
        super().train(source, count, global_step)

    def update(self, batch: Mapping[str, Any], global_step: int | None = None) -> UpdateResult:
        self.set_std(self.update_count if global_step is None else global_step)
        return super().update(batch, global_step)
