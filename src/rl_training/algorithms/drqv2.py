"""DrQ-v2: Yarats et al., "Mastering Visual Continuous Control: Improved Data-Augmented Reinforcement Learning",
2021."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import CARRIED, Batch, Groups, Learner, Metrics, Noise, NoiseSpec, Phase
from rl_training.algorithms.drq import detached
from rl_training.algorithms.losses import as_rows, ensemble_squared_error, td_target
from rl_training.config.fields import above, at_least, setting
from rl_training.config.settings import ImageSettings
from rl_training.core.results import UpdateResult
from rl_training.core.schedules import linear
from rl_training.core.specs import EnvSpec
from rl_training.engine.phases import Source
from rl_training.models.augment import random_shift
from rl_training.models.cnn.drqv2 import CNNDrQv2Model


@dataclass(frozen=True)
class DrQv2Settings(ImageSettings):
    # Defaults: the authors' code (facebookresearch/drqv2 cfgs/config.yaml, cfgs/task/easy.yaml).
    learning_starts: int = setting(2000, at_least(0))
    train_frequency: int = setting(2, at_least(1))
    learning_rate: float = setting(1e-4, above(0))
    n_step: int = setting(3, at_least(1))
    # The spread of the noise, in units of half the action range, falls in a line over so many steps of the agent: an
    # action that is repeated counts once. 100,000 for the paper's easy tasks, 500,000 and 2,000,000 for the others.
    std_start: float = setting(1.0, at_least(0))
    std_end: float = setting(0.1, at_least(0))
    std_steps: int = setting(100_000, at_least(1))
    noise_clip: float = setting(0.3, at_least(0))  # of the noise in the losses, not in the environment


def noisy_action(mean: Tensor, noise: Tensor) -> Tensor:
    """`mean + noise` within the bounds of actions. At a bound the gradient goes on as if there were none."""
    action = mean + noise
    return action + (action.clamp(-1, 1) - action).detach()


def actor_term(q_values: Tensor) -> Tensor:
    """The smaller of the critics' (members, batch) values is what the actor climbs."""
    return -q_values.amin(0).mean()


def drqv2_loss(values: Mapping[str, Tensor]) -> Metrics:
    """From `q1_values, q2_values, target_q_values, sampled_q1, sampled_q2`, all computed."""
    values = as_rows(values)
    target = values["target_q_values"]
    return {
        "critic_loss": ensemble_squared_error(torch.stack([values["q1_values"], values["q2_values"]]), target),
        "actor_loss": actor_term(torch.stack([values["sampled_q1"], values["sampled_q2"]])),
        "target_q_mean": target.mean(),
    }


class DrQv2(Learner):
    name = "drqv2"
    title = "DrQ-v2: deterministic actor from pixels, n-step returns, noise that falls on a schedule"
    observations = ("image",)
    settings_type = DrQv2Settings
    targets: ClassVar[Mapping[str, str]] = {"target": "critic"}  # the encoder has none

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return CNNDrQv2Model(spec.observation.shape, spec.action.size, **settings.network_sizes())

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"encoder": model.encoder, "critic": model.critic, "actor": model.actor}  # type: ignore[dict-item]

    def scalars(self) -> dict[str, dict[str, float]]:
        return {"schedule": {"std": self.settings.std_start}}

    def phases(self) -> tuple[Phase, ...]:
        return Phase(("encoder", "critic"), self.critic_loss), Phase(("actor",), self.actor_loss)

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        shift, action = NoiseSpec("uniform", (batch_size, 2)), NoiseSpec("normal", (batch_size, self.action_dim))
        return {"shift": shift, "next_shift": shift, "action": action, "next_action": action}

    def critic_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        settings, encoder, critic = self.settings, self.networks["encoder"], self.networks["critic"]
        next_obs = random_shift(batch["next_obs"], noise["next_shift"], settings.augmentation_pad)
        next_features = encoder(detached(groups["encoder"]), next_obs)
        next_action = self.smoothed_action(groups, next_features, noise["next_action"])
        next_q = critic(groups["target"], next_features, next_action).amin(0)
        target = td_target(batch, settings.gamma, next_q)
        features = encoder(groups["encoder"], random_shift(batch["obs"], noise["shift"], settings.augmentation_pad))
        loss = ensemble_squared_error(critic(groups["critic"], features, batch["actions"]), target)
        return loss, {"critic_loss": loss, "target_q_mean": target.mean(), CARRIED: features.detach()}

    def actor_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        features = batch[CARRIED]  # as the critics' loss saw them, before its step: the authors do so too
        action = self.smoothed_action(groups, features, noise["action"])
        loss = actor_term(self.networks["critic"](groups["critic"], features, action))
        return loss, {"actor_loss": loss}

    def smoothed_action(self, groups: Groups, features: Tensor, noise: Tensor) -> Tensor:
        """The policy's action with the clipped noise of the schedule."""
        clip = self.settings.noise_clip
        noise = (groups["schedule"]["std"] * noise).clamp(-clip, clip)
        return noisy_action(self.networks["actor"](groups["actor"], features), noise)

    def greedy(self, groups: Groups, obs: Tensor) -> Tensor:
        return self.networks["actor"](groups["actor"], self.networks["encoder"](groups["encoder"], obs))  # type: ignore[no-any-return]

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        # The spread of the newest update, which travels with the agent, and not of the share of some run.
        return noisy_action(self.greedy(groups, obs), groups["schedule"]["std"] * noise)

    # --- the schedule ----------------------------------------------------------------------------------------------
    def exploration(self, progress: float) -> float:
        return self.std_at(self.last_step)

    def std_at(self, step: int) -> float:
        return linear(self.settings.std_start, self.settings.std_end, step / self.settings.std_steps)

    def set_std(self, step: int) -> None:
        self.engine.groups()["schedule"]["std"].fill_(self.std_at(step))

    def train(self, source: Source, count: int, global_step: int) -> None:
        self.set_std(global_step)
        super().train(source, count, global_step)

    def update(self, batch: Mapping[str, Any], global_step: int | None = None) -> UpdateResult:
        self.set_std(self.update_count if global_step is None else global_step)
        return super().update(batch, global_step)
