"""DrQ's networks: a convolutional encoder, a squashed-Gaussian actor and twin critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.core.checks import require
from rl_training.models.cnn.encoders import ENCODERS
from rl_training.models.features import Observed
from rl_training.models.layers import StackedLinear
from rl_training.models.own import OwnFeatures
from rl_training.models.parts import (
    CriticEnsemble,
    GaussianActor,
    SampledActions,
    as_batch,
    check_count,
    orthogonal_,
)

LOG_STD_RANGE = (-10.0, 2.0)


class FeatureHead(nn.Module):
    """A network on the features of an encoder, projected to `features_dim` and normalised."""

    def __init__(self, features: int, features_dim: int, head: nn.Module) -> None:
        super().__init__()
        check_count("features_dim", features_dim)
        self.narrow, self.norm, self.head = StackedLinear(1, features, features_dim), nn.LayerNorm(features_dim), head

    def forward(self, features: Tensor, *rest: Any) -> Any:
        return self.head(self.norm(self.narrow(features.unsqueeze(0)).squeeze(0)).tanh(), *rest)


def image_encoder(encoder: str | Observed, obs_shape: Sequence[int], precision: str, center: float = 0.0) -> nn.Module:
    """Convolutions by name, or the user's own module."""
    if isinstance(encoder, Observed):
        return OwnFeatures(encoder.spec, encoder.make)  # type: ignore[arg-type]
    require(encoder in ENCODERS, "encoder", f"one of {', '.join(ENCODERS)}, got {encoder!r}")
    return ENCODERS[encoder](obs_shape, center, precision)


class CNNDrQModel(nn.Module):
    """Encoder, squashed-Gaussian actor and critics.

    `encoder: drq`: the paper's four layers, shared by actor and critics and trained by the critics alone.
    `encoder: nature`: the Nature CNN, one for the actor and one for the critics, each trained by its own loss.
    An `Observed` with the user's own function takes the place of the paper's layers.
    """

    def __init__(
        self,
        obs_shape: Sequence[int],
        action_dim: int,
        features_dim: int = 50,
        actor_hidden_sizes: Sequence[int] = (1024, 1024),
        critic_hidden_sizes: Sequence[int] = (1024, 1024),
        encoder: str | Observed = "drq",
        num_critics: int = 2,
        precision: str = "float32",
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.num_critics = tuple(obs_shape), action_dim, num_critics
        self.encoder = image_encoder(encoder, obs_shape, precision)
        self.actor_encoder = image_encoder(encoder, obs_shape, precision) if encoder == "nature" else None
        features: Any = self.encoder.features
        policy = GaussianActor(features_dim, action_dim, actor_hidden_sizes, LOG_STD_RANGE)
        critics = CriticEnsemble(num_critics, features_dim, action_dim, critic_hidden_sizes)
        self.actor = FeatureHead(features, features_dim, policy)
        self.critic = FeatureHead(features, features_dim, critics)
        orthogonal_(self, gain=1.0)

    def sample_actions(self, obs: Tensor, deterministic: bool = False) -> SampledActions:
        """Random actions, or the mode of the policy."""
        features = (self.actor_encoder or self.encoder)(obs)
        noise = None if deterministic else torch.randn(len(features), self.action_dim, device=features.device)
        return SampledActions(*self.actor(features, noise))

    def q_values(self, obs: Tensor, actions: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Twin critics give a pair of (batch,) tensors, any other number (batch, num_critics)."""
        values = self.critic(self.encoder(obs), as_batch(actions))
        return (values[0], values[1]) if self.num_critics == 2 else values.T
