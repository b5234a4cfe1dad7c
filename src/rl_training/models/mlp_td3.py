"""TD3's networks: deterministic actor and twin critics."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from rl_training.models.parts import CriticEnsemble, DeterministicActor, SampledActions, as_batch


class MLPTD3Model(nn.Module):
    """Deterministic actor and twin critics."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        self.obs_dim, self.action_dim = obs_dim, action_dim
        self.actor = DeterministicActor(obs_dim, action_dim, hidden_sizes)
        self.critic = CriticEnsemble(2, obs_dim, action_dim, hidden_sizes)

    def sample_actions(self, obs: Tensor) -> SampledActions:
        """The policy's actions, with zeros as log-densities."""
        actions = self.actor(as_batch(obs))
        return SampledActions(actions, actions.new_zeros(actions.shape[0]))

    def q_values(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """The values of both critics, (batch,) each."""
        values = self.critic(as_batch(obs), as_batch(actions))
        return values[0], values[1]
