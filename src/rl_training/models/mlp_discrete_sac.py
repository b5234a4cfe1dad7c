"""Discrete SAC's networks: an actor with a logit and an ensemble of critics with a value for each action."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.distributions import Categorical
from rl_training.models.features import ObsDim, batch_of, on_features, rows_of
from rl_training.models.parts import SampledActions, check_count, network


class ActionLogits(nn.Module):
    """The logits of a policy over discrete actions: (batch, obs) -> (batch, actions)."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.net = network(1, obs_dim, hidden_sizes, action_dim)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).squeeze(0)  # type: ignore[no-any-return]


class ActionValues(nn.Module):
    """`members` Q networks over discrete actions: (batch, obs) -> (members, batch, actions)."""

    def __init__(self, members: int, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        check_count("num_critics", members)
        self.net = network(members, obs_dim, hidden_sizes, action_dim)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs)  # type: ignore[no-any-return]


class MLPDiscreteSACModel(nn.Module):
    """A categorical actor and `num_critics` Q networks; `critic_hidden_sizes` defaults to `hidden_sizes`."""

    def __init__(
        self,
        obs_dim: ObsDim,
        action_dim: int,
        hidden_sizes: Sequence[int] = (256, 256),
        num_critics: int = 2,
        critic_hidden_sizes: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.num_critics = obs_dim, action_dim, num_critics
        sizes = hidden_sizes if critic_hidden_sizes is None else critic_hidden_sizes
        self.actor = on_features(obs_dim, lambda inputs: ActionLogits(inputs, action_dim, hidden_sizes))
        self.critic = on_features(obs_dim, lambda inputs: ActionValues(num_critics, inputs, action_dim, sizes))

    def sample_actions(self, obs: Tensor, deterministic: bool = False) -> SampledActions:
        """Random or the most probable actions, with the logarithms of their probabilities."""
        obs = batch_of(obs, self.obs_dim)
        logits, choices = self.actor(obs), Categorical((self.action_dim,), joint=True)
        noise = torch.rand(rows_of(obs), self.action_dim, device=logits.device)
        actions = choices.mode(logits) if deterministic else choices.sample(logits, noise)
        return SampledActions(actions, choices.log_prob(logits, actions))

    def log_probs(self, obs: Tensor) -> Tensor:
        """(batch, actions): the logarithms of the policy's probabilities."""
        return F.log_softmax(self.actor(batch_of(obs, self.obs_dim)), -1)

    def q_values(self, obs: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Twin critics give a pair of (batch, actions) tensors, any other number (batch, num_critics, actions)."""
        values = self.critic(batch_of(obs, self.obs_dim))
        return (values[0], values[1]) if self.num_critics == 2 else values.transpose(0, 1)

    def action_values(self, obs: Tensor) -> Tensor:
        """(batch, actions): the smallest of the critics' values."""
        return self.critic(batch_of(obs, self.obs_dim)).amin(0)  # type: ignore[no-any-return]
