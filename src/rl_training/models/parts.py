"""Building blocks of networks: actors, critics and values. An ensemble is one stacked tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.config.network import HiddenLayers
from rl_training.core.checks import require
from rl_training.models.layers import (
    StackedLinear,
    check_vectors,
    hidden_linear,
    hidden_stages,
    infer_dense,
    inferring,
    own_layers,
)
from rl_training.models.own import OwnNetworks
from rl_training.models.simba import Simba

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
MAX_ACTION = 1 - 1e-5  # recorded actions at a bound would have no finite density under a squashed policy


@dataclass(frozen=True)
class SampledActions:
    """Actions in [-1, 1] and their log-densities, one number per row."""

    actions: Tensor
    logprobs: Tensor


def midpoints(count: int, device: torch.device) -> Tensor:
    """The levels of `count` quantiles: the midpoints of as many equal intervals."""
    return (torch.arange(count, device=device) + 0.5) / count


def check_count(name: str, value: int, minimum: int = 1) -> None:
    """Reject a count that is not an integer >= `minimum`."""
    require(isinstance(value, int) and value >= minimum, name, f"an integer >= {minimum}, got {value!r}")


class StackedMLP(nn.Module):
    """`members` perceptrons; `hidden_sizes` may be empty, or `HiddenLayers` that say what stands between them."""

    is_dense = True  # no further layers than `layers` and `stages`

    def __init__(self, members: int, n_in: int, hidden_sizes: Sequence[int], n_out: int) -> None:
        super().__init__()
        layers, sizes = HiddenLayers.of(hidden_sizes), [n_in, *hidden_sizes]
        dense = [hidden_linear(members, a, b, layers) for a, b in pairwise(sizes)]
        self.layers = nn.ModuleList([*dense, StackedLinear(members, sizes[-1], n_out)])
        self.stages = hidden_stages(members, layers)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, n_in) -> (members, batch, n_out)."""
        check_vectors(x)
        hidden = x.unsqueeze(0)
        if self.is_dense and inferring():
            return infer_dense(self.layers, self.stages, len(self.layers) - 1, hidden)
        for number in range(len(self.layers) - 1):
            hidden = self.hidden(number, hidden)
        return self.output(hidden)

    def hidden(self, number: int, x: Tensor) -> Tensor:
        """One hidden layer with what follows it."""
        x = self.layers[number](x)
        return F.relu(x) if self.stages is None else self.stages[number](x)

    def output(self, x: Tensor) -> Tensor:
        """The last layer."""
        return self.layers[-1](x)  # type: ignore[no-any-return]


NetworkFunction = Callable[[int, int, Sequence[int], int], nn.Module]  # the arguments of `network`


def network(
    members: int, n_in: int, hidden_sizes: Sequence[int], n_out: int, perceptron: NetworkFunction = StackedMLP
) -> nn.Module:
    """`members` networks (batch, n_in) -> (members, batch, n_out), of the kind of their hidden layers or the user's."""
    layers = HiddenLayers.of(hidden_sizes)
    if layers.module is not None:
        return OwnNetworks(members, n_in, n_out, layers.module, layers.name)
    return (Simba if layers.is_simba else perceptron)(members, n_in, layers, n_out)


class GaussianActor(nn.Module):
    """A squashed Gaussian policy. With a `log_std_range` tanh maps log_std into it, else log_std is clamped."""

    def __init__(
        self,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        log_std_range: tuple[float, float] | None = None,
        make: NetworkFunction = network,
    ) -> None:
        super().__init__()
        self.log_std_range = log_std_range
        self.net = make(1, obs_dim, hidden_sizes, 2 * action_dim)

    def forward(self, obs: Tensor, noise: Tensor | None, actions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The action for standard normal `noise` and its log-density; None gives the mode (its density is not used).

        Noise may have more axes in front: several actions for each observation. Given `actions`, their log-density.
        """
        mean, log_std = self.net(obs).squeeze(0).chunk(2, -1)
        if noise is None and actions is None:
            return mean.tanh(), mean.new_zeros(mean.shape[:-1])
        if self.log_std_range is None:
            log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
        else:
            low, high = self.log_std_range
            log_std = low + 0.5 * (high - low) * (log_std.tanh() + 1)
        if actions is not None:
            # The inverse of tanh; atanh, like softplus below, would round differently with seeds stacked.
            inside = actions.clamp(-MAX_ACTION, MAX_ACTION)
            noise = (0.5 * ((1 + inside) / (1 - inside)).log() - mean) / log_std.exp()
        assert noise is not None
        return squashed_gaussian(mean, log_std, noise)


def squashed_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """tanh(mean + std * noise) and its log-density."""
    pre = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh(u)^2) in a form that neither overflows nor takes the log of zero. Not with softplus: on a CPU its
    # rounding depends on a number's position in the array, so stacked seeds would differ.
    log_slope = 2 * (math.log(2) - pre + F.logsigmoid(2 * pre))
    return pre.tanh(), (log_normal - log_slope).sum(-1)


class DeterministicActor(nn.Module):
    """A deterministic policy: the squashed output of one network."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.net = network(1, obs_dim, hidden_sizes, action_dim)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).squeeze(0).tanh()  # type: ignore[no-any-return]


class ClippedGaussianActor(nn.Module):
    """A Gaussian with a squashed mean and one standard deviation for all observations (Kostrikov et al. 2021)."""

    def __init__(self, obs_dim: int, action_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.mean = DeterministicActor(obs_dim, action_dim, hidden_sizes)
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of each row, and the logarithm of the common standard deviation."""
        return self.mean(obs), self.log_std.clamp(-5.0, LOG_STD_MAX)


def gaussian_log_density(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """The log-density of each row of actions: (batch, action) -> (batch,)."""
    scaled = (actions - mean) * (-log_std).exp()
    return (-0.5 * scaled.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


class ValueNetwork(nn.Module):
    """The value of a state: (batch, obs) -> (batch,)."""

    def __init__(self, obs_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.net = network(1, obs_dim, hidden_sizes, 1)

    def forward(self, obs: Tensor) -> Tensor:
        return self.net(obs).squeeze(0).squeeze(-1)  # type: ignore[no-any-return]


class QuantileCriticEnsemble(nn.Module):
    """`members` networks for quantiles of the return: (batch, obs), (batch, action) -> (members, batch, quantiles)."""

    def __init__(
        self,
        members: int,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        quantiles: int,
        make: NetworkFunction = network,
    ) -> None:
        super().__init__()
        check_count("num_critics", members)
        check_count("num_quantiles", quantiles)
        self.net = make(members, obs_dim + action_dim, hidden_sizes, quantiles)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.net(torch.cat([obs, actions], -1))  # type: ignore[no-any-return]


class CriticEnsemble(QuantileCriticEnsemble):
    """`members` action-value networks: (batch, obs), (batch, action) -> (members, batch)."""

    def __init__(
        self,
        members: int,
        obs_dim: int,
        action_dim: int,
        hidden_sizes: Sequence[int],
        make: NetworkFunction = network,
    ) -> None:
        super().__init__(members, obs_dim, action_dim, hidden_sizes, 1, make)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return super().forward(obs, actions).squeeze(-1)


def xavier_(model: nn.Module) -> None:
    """Initialise every dense layer with Glorot's uniform weights and zero biases."""
    for layer in model.modules():
        if isinstance(layer, StackedLinear):
            bound = math.sqrt(6 / (layer.weight.shape[1] + layer.weight.shape[2]))
            nn.init.uniform_(layer.weight, -bound, bound)
            nn.init.zeros_(layer.bias)


def orthogonal_(model: nn.Module, gain: float) -> None:
    """Initialise dense layers and, with the gain of a ReLU, convolutions with orthogonal weights and zero biases.

    Modules of the user stay as they are.
    """
    for layer in own_layers(model):
        if isinstance(layer, nn.Conv2d):
            nn.init.orthogonal_(layer.weight, math.sqrt(2))
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
        if isinstance(layer, StackedLinear):
            for weight in layer.weight.data:
                nn.init.orthogonal_(weight, gain)
            nn.init.zeros_(layer.bias)


def as_batch(value: Tensor) -> Tensor:
    """A float32 batch; a single unbatched vector becomes a batch of one."""
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        value = torch.as_tensor(value, dtype=torch.float32)
    check_vectors(value)
    return value.unsqueeze(0) if value.ndim == 1 else value
