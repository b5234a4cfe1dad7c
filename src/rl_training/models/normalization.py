"""Normalisation of stacked ensembles: by batches, renormalised, and layers whose parameters have a fixed norm.

The statistics of each member are buffers. The engine replaces the parameters of a layer with a method `projected` by
what it returns for them, at the start and after each step of the optimizer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from rl_training.core.checks import require
from rl_training.models.layers import StackedLinear, square_root

R_MAX, D_MAX = 3.0, 5.0  # how far renormalisation may correct scale and shift: Ioffe 2017, section 4.1
NORM_EPS = 1e-8


class StackedBatchNorm(nn.Module):
    """Batch normalisation of (members or 1, batch, n) with `members` scales and shifts (Ioffe and Szegedy 2015).

    Results and statistics are those of torch.nn.BatchNorm1d for each member.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, members: int, size: int, momentum: float = 0.01, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(members, 1, size))
        self.bias = nn.Parameter(torch.zeros(members, 1, size))
        self.register_buffer("running_mean", torch.zeros(members, 1, size))
        self.register_buffer("running_var", torch.ones(members, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            normal = (x - self.running_mean) * (self.running_var + self.eps).rsqrt()
            return normal * self.weight + self.bias
        rows = x.shape[-2]
        require(rows >= 2, "batch_size", f">= 2 with batch normalisation, got {rows}")
        mean, var = x.mean(-2, keepdim=True), x.var(-2, correction=0, keepdim=True)
        normal = self.corrected((x - mean) * (var + self.eps).rsqrt(), mean.detach(), var.detach())
        # Not by lerp_, which vmap would run one seed at a time.
        self.running_mean.mul_(1 - self.momentum).add_(self.momentum * mean.detach())
        self.running_var.mul_(1 - self.momentum).add_(self.momentum * rows / (rows - 1) * var.detach())
        return normal * self.weight + self.bias

    def corrected(self, normal: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        """Rows that were normalised by the mean and variance of their batch, corrected by a subclass."""
        return normal


class BatchRenorm(StackedBatchNorm):
    """Batch renormalisation (Ioffe 2017): training normalises nearly as inference does, by running statistics.

    The first `warmup` training passes are plain batch normalisation, so that there are statistics to use.
    """

    passes: Tensor

    def __init__(
        self, members: int, size: int, momentum: float = 0.01, eps: float = 1e-3, warmup: int = 100_000
    ) -> None:
        super().__init__(members, size, momentum, eps)
        self.warmup = warmup
        self.register_buffer("passes", torch.zeros(members, 1, 1, dtype=torch.int64))

    def corrected(self, normal: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        per_std = (self.running_var + self.eps).rsqrt()
        r = ((var + self.eps) * (var + self.eps).rsqrt() * per_std).clamp(1 / R_MAX, R_MAX)
        d = ((mean - self.running_mean) * per_std).clamp(-D_MAX, D_MAX)
        warm = self.passes < self.warmup
        corrected = normal * torch.where(warm, 1.0, r) + torch.where(warm, 0.0, d)
        self.passes.add_(1)
        return corrected


class UnitLinear(StackedLinear):
    """Dense layers of orthogonal initial weights, whose weights for each output keep length 1; a bias if wanted."""

    def __init__(self, members: int, n_in: int, n_out: int, has_bias: bool = False) -> None:
        super().__init__(members, n_in, n_out)
        for weight in self.weight.data:
            nn.init.orthogonal_(weight)
        self.bias = nn.Parameter(torch.zeros(members, 1, n_out)) if has_bias else None  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is not None:
            return super().forward(x)
        return torch.matmul(x.to(self.dtype), self.weight.to(self.dtype)).float()

    def projected(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        length = square_root(own["weight"].square().sum(-2, keepdim=True)).clamp_min(NORM_EPS)
        return {"weight": own["weight"] / length}


class UnitBatchNorm(StackedBatchNorm):
    """Batch normalisation whose scales and shifts together keep the length sqrt(n)."""

    def projected(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        return _of_length_sqrt(own)


class UnitRMSNorm(nn.Module):
    """Rows divided by their root mean square (Zhang and Sennrich 2019), with scales that keep the length sqrt(n)."""

    def __init__(self, members: int, size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(members, 1, size))

    def forward(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight

    def projected(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        return _of_length_sqrt(own)


def _of_length_sqrt(own: dict[str, Tensor]) -> dict[str, Tensor]:
    """Vectors (..., n) scaled by a common factor to the length sqrt(n)."""
    squares = [one.square().sum(-1, keepdim=True) for one in own.values()]
    factor = math.sqrt(next(iter(own.values())).shape[-1]) * (sum(squares[1:], squares[0]) + NORM_EPS).rsqrt()
    return {name: one * factor for name, one in own.items()}
