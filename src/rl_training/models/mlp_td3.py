"""TD3's networks: deterministic actor and twin critics."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rl_training.models.features import ObsDim, batch_of, on_features
from rl_training.models.parts import CriticEnsemble, DeterministicActor, SampledActions, as_batch


class MLPTD3Model(nn.Module):
    """Deterministic actor and twin critics; `critic_hidden_sizes` defaults to `hidden_sizes`."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        critic_hidden_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        sizes = hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes
        self.actor = on_features(obs_dim, lambda inputs: DeterministicActor(inputs, action_dim, hidden_sizes))
        self.critic = on_features(obs_dim, lambda inputs: CriticEnsemble(2, inputs, action_dim, sizes))

    def sample_actions(self, obs: Tensor) -> SampledActions:
        """The policy's actions, with zeros as log-densities."""
        actions = self.actor(batch_of(obs, self.obs_dim))
        return SampledActions(actions, actions.new_zeros(actions.shape[0]))

    def q_values(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The values of both critics, (batch,) each."""
        values = self.critic(batch_of(obs, self.obs_dim), as_batch(actions))
        return values[0], values[1]
