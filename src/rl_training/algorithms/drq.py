"""DrQ: Kostrikov et al., "Image Augmentation Is All You Need: Regularizing Deep Reinforcement Learning from Pixels",
2020."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from rl_training.algorithms.base import Batch, Groups, Metrics, Noise, NoiseSpec, Params, Phase
from rl_training.algorithms.losses import ensemble_squared_error, td_target
from rl_training.algorithms.sac import SAC, SACSettings, sac_loss
from rl_training.config.fields import above, at_least, one_of, setting
from rl_training.config.settings import ImageSettings
from rl_training.core.results import UpdateResult
from rl_training.core.specs import EnvSpec
from rl_training.models.augment import random_shift
from rl_training.models.cnn.drq import CNNDrQModel

MOST_AUGMENTATIONS = 64
drq_loss = sac_loss  # the augmentations change what the values are made from, not the formula


@dataclass(frozen=True)
class DrQSettings(ImageSettings, SACSettings):
    # Defaults: the authors' code (denisyarats/drq config.yaml, drq.py), but for the temperature, which they tune
    # (`alpha: auto`) from where ours stays; their loss is the sum over the M images, ours the paper's mean.
    buffer_capacity: int = setting(100_000, at_least(1))
    batch_size: int = setting(128, at_least(1))
    learning_starts: int = setting(1000, at_least(0))
    learning_rate: float = setting(1e-3, above(0))
    alpha: float | Literal["auto"] = setting(0.1, at_least(0))
    initial_alpha: float = setting(0.1, at_least(1e-8))
    policy_delay: int = setting(2, at_least(1))  # updates of the critics for each of the actor and the targets
    target_augmentations: int = setting(2, at_least(1, MOST_AUGMENTATIONS))  # the paper's K
    loss_augmentations: int = setting(2, at_least(1, MOST_AUGMENTATIONS))  # the paper's M
    encoder: str = setting("drq", one_of("drq", "nature"))

    @property
    def network_rows(self) -> int:
        return self.batch_size * max(self.target_augmentations, self.loss_augmentations)


def detached(params: Params) -> Params:
    """Parameters that a loss uses but does not train."""
    return {name: tensor.detach() for name, tensor in params.items()}


class DrQ(SAC):
    """SAC on randomly shifted images: the target is a mean over K shifts, the critics' loss over M."""

    name = "drq"
    title = "Data-regularized Q: SAC from pixels with random shifts"
    observations = ("image",)
    settings_type = DrQSettings
    targets: ClassVar[Mapping[str, str]] = {"target_encoder": "encoder", "target": "critic"}
    target_phase = 1  # the targets wait for the actor

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        sizes = {**settings.network_sizes(), "num_critics": settings.num_critics}
        return CNNDrQModel(spec.observation.shape, spec.action.size, encoder=settings.encoder, **sizes)

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        networks: dict[str, Any] = {"encoder": model.encoder, "critic": model.critic, "actor": model.actor}
        own = getattr(model, "actor_encoder", None)  # none: the actor looks through the critics' convolutions
        return networks if own is None else {**networks, "actor_encoder": own}

    def phases(self) -> tuple[Phase, ...]:
        critic, policy = super().phases()
        own = ("actor_encoder",) if "actor_encoder" in self.networks else ()
        return Phase(("encoder", *critic.groups), critic.loss), Phase((*own, *policy.groups), policy.loss, policy.every)

    @property
    def policy_every(self) -> int:
        return int(self.settings.policy_delay)

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        targets, losses = self.settings.target_augmentations, self.settings.loss_augmentations
        return {
            "shift": NoiseSpec("uniform", (losses * batch_size, 2)),
            "next_shift": NoiseSpec("uniform", (targets * batch_size, 2)),
            "next_action": NoiseSpec("normal", (targets * batch_size, self.action_dim)),
            "action": NoiseSpec("normal", (batch_size, self.action_dim)),
        }

    def critic_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        settings, encoder, critic = self.settings, self.networks["encoder"], self.networks["critic"]
        alpha, rows = groups["temperature"]["log_alpha"].exp(), len(batch["rewards"])
        next_obs = random_shift(batch["next_obs"], noise["next_shift"], settings.augmentation_pad)
        next_action, logprob = self.act(groups, next_obs, noise["next_action"])
        next_features = encoder(groups["target_encoder"], next_obs)
        next_q = critic(groups["target"], next_features, next_action).amin(0) - alpha * logprob
        target = td_target(batch, settings.gamma, next_q.view(-1, rows).mean(0))
        obs = random_shift(batch["obs"], noise["shift"], settings.augmentation_pad)
        features = encoder(groups["encoder"], obs)
        q = critic(groups["critic"], features, batch["actions"].repeat(settings.loss_augmentations, 1))
        loss = ensemble_squared_error(q, target.repeat(settings.loss_augmentations))
        return loss, {"critic_loss": loss, "target_q_mean": target.mean()}

    def policy_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        first = noise["shift"][: len(batch["rewards"])]  # the first of the M images
        obs = random_shift(batch["obs"], first, self.settings.augmentation_pad)
        features = seen = self.networks["encoder"](detached(groups["encoder"]), obs)
        if "actor_encoder" in self.networks:
            seen = self.networks["actor_encoder"](groups["actor_encoder"], obs)
        action, logprob = self.networks["actor"](groups["actor"], seen, noise["action"])
        q_value = self.action_value(self.networks["critic"](groups["critic"], features, action))
        return self.policy_terms(groups, logprob, q_value)

    def act(self, groups: Groups, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """The policy's actions and their log-densities; no gradient reaches the convolutions."""
        eyes = "actor_encoder" if "actor_encoder" in self.networks else "encoder"
        features = self.networks[eyes](detached(groups[eyes]), obs)
        return self.networks["actor"](groups["actor"], features, noise)  # type: ignore[no-any-return]

    def greedy(self, groups: Groups, obs: Tensor) -> Tensor:
        return self.act(groups, obs, None)[0]

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        return self.act(groups, obs, noise)[0]

    def update(self, batch: Mapping[str, Any], global_step: int | None = None) -> UpdateResult:
        result = super().update(batch, global_step)
        counted = ChainMap({"algorithm_updates": float(self.update_count)}, result.metrics)  # type: ignore[arg-type]
        return UpdateResult(result.num_gradient_steps, counted)
