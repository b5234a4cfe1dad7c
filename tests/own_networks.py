"""Networks, features and schedules of a user's own, for tests and for `--object own_networks:Name`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class BatchNormNet(nn.Module):
    """Batch norm and dropout, as torch has them."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        # Without a bias, whose gradient in front of batch norm is nothing but rounding errors.
        layers = [nn.Linear(inputs, 24, bias=False), nn.BatchNorm1d(24, momentum=0.3), nn.ReLU(), nn.Dropout(0.25)]
        self.net = nn.Sequential(*layers, nn.Linear(24, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]


class Features(nn.Module):
    """Features of a vector."""

    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.dense = nn.Linear(observation.size, 12)

    def forward(self, obs: Tensor) -> Tensor:
        return self.dense(obs).tanh()  # type: ignore[no-any-return]


class DictFeatures(nn.Module):
    """Features of `dict_envs.MIXED`, by the names of its entries; the camera is float32 in [0, 1]."""

    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.eye = nn.Conv2d(3, 4, 8, stride=4)

    def forward(self, obs: dict[str, Tensor]) -> Tensor:
        assert set(obs) == {"camera", "position", "mode"} and obs["camera"].max() <= 1
        return torch.cat([self.eye(obs["camera"]).relu().flatten(1), obs["position"], obs["mode"]], -1)


class Branching(nn.Module):
    """A module that vmap cannot run: its forward pass depends on the values."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        y = self.dense(x)
        return y if bool(y.sum() > 0) else -y


class DroppingByFunction(Branching):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(self.dense(x), 0.1, self.training)


class Assigning(nn.Module):
    """Replaces its buffer by another tensor."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = self.seen + len(x)
        return self.dense(x)  # type: ignore[no-any-return]


def too_wide(inputs: int, outputs: int) -> nn.Module:
    return nn.Linear(inputs, outputs + 3)


def no_module(inputs: int, outputs: int) -> Any:
    return "a string"


def raising(inputs: int, outputs: int) -> nn.Module:
    raise ValueError("no such width")


def halving(progress: float) -> float:
    """A learning rate that halves over the run."""
    return 1e-3 * (1 - 0.5 * progress)


class Attention(nn.Module):
    """Dropout inside a kernel, which draws from torch's generator."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(inputs, 1, dropout=0.3, batch_first=True)
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.unsqueeze(1)
        return self.dense(self.attention(rows, rows, rows)[0].squeeze(1))  # type: ignore[no-any-return]


class OneDropout(nn.Module):
    """One dropout layer used at two places."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(inputs, 8), nn.Linear(8, outputs), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.second(self.drop(self.first(x))))  # type: ignore[no-any-return]


class TiedAndFrozen(nn.Module):
    """Two layers that share a weight, behind one that is not trained; it counts in training mode alone."""

    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.frozen = nn.Linear(observation.size, 6).requires_grad_(False)
        self.a, self.b = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.b.weight = self.a.weight

    def forward(self, obs: Tensor) -> Tensor:
        features = self.b(self.a(self.frozen(obs)).tanh())
        return features + 100 if self.training else features  # type: ignore[no-any-return]
