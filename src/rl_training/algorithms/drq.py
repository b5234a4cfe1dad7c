"""DrQ: Kostrikov et al., "Image Augmentation Is All You Need: Regularizing Deep Reinforcement Learning from Pixels",
2020."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from rl_training.algorithms.base import Batch, BoundNetwork, LossResult, Noise, NoiseSpec, Phase, Polyak
from rl_training.algorithms.loss_functions import drq_loss as drq_loss
from rl_training.algorithms.losses import ensemble_squared_error, td_target
from rl_training.algorithms.sac import SAC, SACNetworks, SACSettings
from rl_training.config.fields import above, at_least, one_of, setting
from rl_training.config.settings import ImageSettings
from rl_training.core.results import UpdateResult
from rl_training.core.specs import EnvSpec
from rl_training.models.augment import random_shift
from rl_training.models.cnn.drq import CNNDrQModel
from rl_training.models.features import Observed, network_input

MAX_AUGMENTATIONS = 64


@dataclass(frozen=True)
class DrQSettings(ImageSettings, SACSettings):
    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp",)

    # Defaults: the authors' code (denisyarats/drq config.yaml, drq.py), except for the temperature: they
    # tune it from this value (`alpha: auto`). Their loss is the sum over the M images, ours the paper's mean.
    buffer_capacity: int = setting(100_000, at_least(1))
    batch_size: int = setting(128, at_least(1))
    learning_starts: int = setting(1000, at_least(0))
    learning_rate: float = setting(1e-3, above(0))
    alpha: float | Literal["auto"] = setting(0.1, at_least(0))
    initial_alpha: float = setting(0.1, at_least(1e-8))
    policy_delay: int = setting(2, at_least(1))  # updates of the critics for each of the actor and the targets
    target_augmentations: int = setting(2, at_least(1, MAX_AUGMENTATIONS))  # copies in the target (the paper's K)
    loss_augmentations: int = setting(2, at_least(1, MAX_AUGMENTATIONS))  # copies in the loss (the paper's M)
    encoder: str = setting("drq", one_of("drq", "nature"))  # the convolutions: the authors' or the Nature CNN

    @property
    def network_rows(self) -> int:
        return self.batch_size * max(self.target_augmentations, self.loss_augmentations)


class DrQNetworks(SACNetworks):
    encoder: BoundNetwork[Tensor]  # images -> features
    actor_encoder: BoundNetwork[Tensor]  # the actor's, if it has one

    def policy(self, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """As in SAC; the encoder gets no gradient."""
        encoder = self.actor_encoder if "actor_encoder" in self else self.encoder
        return self.actor(encoder.detached()(obs), noise)


class DrQ(SAC):
    """SAC on randomly shifted images: the target is a mean over K shifts, the critics' loss over M."""

    name = "drq"
    title = "Data-regularized Q: SAC from pixels with random shifts"
    observations = ("image",)
    settings_type = DrQSettings
    networks_type = DrQNetworks
    settings: DrQSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        sizes = {**settings.network_sizes(), "num_critics": settings.num_critics}
        own = network_input(spec.observation, settings.network)
        encoder = own if isinstance(own, Observed) else settings.encoder
        return CNNDrQModel(spec.observation.shape, spec.action.size, encoder=encoder, **sizes)

    def modules(self, model: Any) -> dict[str, nn.Module]:
        networks = {"encoder": model.encoder, "critic": model.critic, "actor": model.actor}
        own = getattr(model, "actor_encoder", None)  # None: the actor uses the critics' features
        return networks if own is None else {**networks, "actor_encoder": own}

    def phases(self) -> tuple[Phase, ...]:
        critic, policy = super().phases()
        own = ("actor_encoder",) if "actor_encoder" in self.modules(self.model) else ()
        return (
            replace(critic, groups=("encoder", *critic.groups)),
            replace(policy, groups=(*own, *policy.groups), every=self.settings.policy_delay),
        )

    def target_update(self) -> Polyak:
        # Delayed: the targets are updated with the actor.
        return Polyak({"target_encoder": "encoder", "target_critic": "critic"}, self.settings.tau, after="policy")

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        targets, losses = self.settings.target_augmentations, self.settings.loss_augmentations
        return {
            "shift": NoiseSpec("uniform", (losses * batch_size, 2)),
            "next_shift": NoiseSpec("uniform", (targets * batch_size, 2)),
            "next_action": NoiseSpec("normal", (targets * batch_size, self.action_dim)),
            "action": NoiseSpec("normal", (batch_size, self.action_dim)),
        }

    def critic_loss(self, nets: DrQNetworks, batch: Batch, noise: Noise) -> LossResult:  # type: ignore[override]
        settings, rows = self.settings, len(batch["rewards"])
        next_obs = random_shift(batch["next_obs"], noise["next_shift"], settings.augmentation_pad)
        next_action, logprob = nets.policy(next_obs, noise["next_action"])
        next_q = nets.target.critic(nets.target.encoder(next_obs), next_action).amin(0) - nets.alpha * logprob
        target = td_target(batch, settings.gamma, next_q.view(-1, rows).mean(0))
        features = nets.encoder(random_shift(batch["obs"], noise["shift"], settings.augmentation_pad))
        q = nets.critic(features, batch["actions"].repeat(settings.loss_augmentations, 1))
        loss = ensemble_squared_error(q, target.repeat(settings.loss_augmentations))
        return LossResult(loss, {"critic_loss": loss, "target_q_mean": target.mean()})

    def policy_loss(self, nets: DrQNetworks, batch: Batch, noise: Noise) -> LossResult:  # type: ignore[override]
        first = noise["shift"][: len(batch["rewards"])]  # the first of the M images
        obs = random_shift(batch["obs"], first, self.settings.augmentation_pad)
        features = nets.encoder.detached()(obs)
        seen = nets.actor_encoder(obs) if "actor_encoder" in nets else features
        action, logprob = nets.actor(seen, noise["action"])
        return self.policy_result(nets, logprob, self.policy_value(nets.critic(features, action)))

    def update(self, batch: Mapping[str, Any], global_step: int | None = None) -> UpdateResult:
        result = super().update(batch, global_step)
        counted = ChainMap({"algorithm_updates": float(self.update_count)}, result.metrics)  # type: ignore[arg-type]
        return UpdateResult(result.num_gradient_steps, counted)
