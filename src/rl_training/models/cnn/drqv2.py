"""DrQ-v2's networks: a convolutional encoder, a deterministic actor and twin critics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from rl_training.models.cnn.drq import FeatureHead, image_encoder
from rl_training.models.features import Observed
from rl_training.models.parts import CriticEnsemble, DeterministicActor, SampledActions, as_batch, orthogonal_


class CNNDrQv2Model(nn.Module):
    """Encoder, deterministic actor and twin critics; the critics alone train the encoder. Pixels are in [-0.5, 0.5]."""

    def __init__(
        self,
        obs_shape: Sequence[int],
        action_dim: int,
        features_dim: int = 50,
        actor_hidden_sizes: Sequence[int] = (1024, 1024),
        critic_hidden_sizes: Sequence[int] = (1024, 1024),
        precision: str = "float32",
        encoder: str | Observed = "drq",
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = tuple(obs_shape), action_dim
        self.encoder = image_encoder(encoder, obs_shape, precision, center=0.5)
        features: Any = self.encoder.features
        policy = DeterministicActor(features_dim, action_dim, actor_hidden_sizes)
        critics = CriticEnsemble(2, features_dim, action_dim, critic_hidden_sizes)
        self.actor = FeatureHead(features, features_dim, policy)
        self.critic = FeatureHead(features, features_dim, critics)
        orthogonal_(self, gain=1.0)

    def sample_actions(self, obs: Tensor) -> SampledActions:
        """The policy's actions, with zeros as log-densities."""
        actions = self.actor(self.encoder(obs))
        return SampledActions(actions, actions.new_zeros(actions.shape[0]))

    def q_values(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The values of both critics, (batch,) each."""
        values = self.critic(self.encoder(obs), as_batch(actions))
        return values[0], values[1]
