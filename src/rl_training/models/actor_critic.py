"""The networks of on-policy learning: an actor and a state value, with layers or a memory that they may share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.config.network import HiddenLayers
from rl_training.core.checks import require
from rl_training.core.specs import ArraySpec
from rl_training.models.distributions import distribution_of
from rl_training.models.features import ObsDim, make_features, on_features
from rl_training.models.layers import own_layers
from rl_training.models.memory import Memory, memory
from rl_training.models.noisy import DenseLayers
from rl_training.models.parts import LOG_STD_MAX, LOG_STD_MIN, StackedMLP, ValueNetwork, network, orthogonal_

HIDDEN_GAIN, ACTOR_GAIN, CRITIC_GAIN = math.sqrt(2), 0.01, 1.0  # of orthogonal weights, as in CleanRL's PPO


class PolicyNetwork(nn.Module):
    """The parameters of a distribution over actions: (batch, inputs) -> (batch, outputs)."""

    def __init__(self, inputs: int, outputs: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.net = network(1, inputs, hidden_sizes, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).squeeze(0)  # type: ignore[no-any-return]


class GaussianPolicyNetwork(PolicyNetwork):
    """The means and log_stds of continuous actions: each element has one log_std for all observations.

    With `predicted_log_std` the network computes it, as the difference from `initial_log_std`.
    """

    def __init__(
        self, inputs: int, size: int, hidden_sizes: Sequence[int], predicted_log_std: bool, initial_log_std: float
    ) -> None:
        super().__init__(inputs, 2 * size if predicted_log_std else size, hidden_sizes)
        self.initial_log_std = initial_log_std
        self.log_std = None if predicted_log_std else nn.Parameter(torch.full((size,), initial_log_std))

    def forward(self, x: Tensor) -> Tensor:
        if self.log_std is not None:
            mean = super().forward(x)
            return torch.cat([mean, self.log_std.expand_as(mean)], -1)
        mean, change = super().forward(x).chunk(2, -1)
        return torch.cat([mean, (change + self.initial_log_std).clamp(LOG_STD_MIN, LOG_STD_MAX)], -1)


class ActorCriticModel(nn.Module):
    """An actor, whose outputs are the parameters of `distribution`, and a critic, the value of a state.

    Observations pass through `body` and `memory`, each where there is one, and then through `actor` and `critic`.
    `shared`: the body has the hidden layers of `actor_layers`, and actor and critic are one dense layer each. Else
    they have hidden layers of their own, and a body only for the features that a memory reads. `recurrent`: "lstm" or
    "gru", with `recurrent_size` outputs.
    """

    def __init__(
        self,
        obs_dim: ObsDim,
        action: ArraySpec,
        actor_layers: Sequence[int],
        critic_layers: Sequence[int],
        *,
        shared: bool,
        recurrent: str | None = None,
        recurrent_size: int = 256,
        predicted_log_std: bool = False,
        initial_log_std: float = 0.0,
    ) -> None:
        super().__init__()
        self.obs_dim, self.action_dim, self.action = obs_dim, action.size, action
        self.distribution = distribution_of(action)
        self.body: nn.Module | None = None
        self.memory: Memory | None = None
        inputs: ObsDim = obs_dim
        if shared:
            for layers in (HiddenLayers.of(actor_layers), HiddenLayers.of(critic_layers)):
                require(layers.module is None, layers.name, "left out where actor and critic share their layers")
            self.body, inputs = _shared_body(obs_dim, HiddenLayers.of(actor_layers))
            actor_layers = critic_layers = ()
        elif recurrent is not None:
            self.body = make_features(obs_dim)
            inputs = obs_dim if self.body is None else _features(self.body)
        if recurrent is not None:
            assert isinstance(inputs, int)
            self.memory, inputs = memory(recurrent, inputs, recurrent_size), recurrent_size

        def policy(size: int) -> PolicyNetwork:
            if action.kind != "continuous":
                return PolicyNetwork(size, self.distribution.outputs, actor_layers)
            return GaussianPolicyNetwork(size, action.size, actor_layers, predicted_log_std, initial_log_std)

        self.actor = on_features(inputs, policy)
        self.critic = on_features(inputs, lambda size: ValueNetwork(size, critic_layers))
        orthogonal_(self, HIDDEN_GAIN)
        for part, gain in ((self.actor, ACTOR_GAIN), (self.critic, CRITIC_GAIN)):
            for layer in own_layers(part):
                if isinstance(layer, StackedMLP):
                    orthogonal_(layer.layers[-1], gain)

    def groups(self) -> dict[str, nn.Module]:
        """The parameter groups: `body` and `memory`, where there are any, `actor` and `critic`."""
        parts = {"body": self.body, "memory": self.memory, "actor": self.actor, "critic": self.critic}
        return {name: part for name, part in parts.items() if part is not None}


def _shared_body(obs_dim: ObsDim, layers: HiddenLayers) -> tuple[nn.Module | None, int]:
    """Features, if the observation needs any, with hidden layers on them; and the number of outputs."""
    if isinstance(obs_dim, int) and not layers:
        return None, obs_dim
    sizes: list[int] = []

    def trunk(inputs: int) -> DenseLayers:
        sizes.extend([inputs, *layers])
        return DenseLayers(sizes, len(layers), layers, ends_hidden=True)

    return on_features(obs_dim, trunk), sizes[-1]


def _features(module: Any) -> int:
    return int(module.features)
