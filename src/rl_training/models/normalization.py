"""Batch normalisation and batch renormalisation of stacked ensembles; the statistics of each member are buffers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rl_training.core.checks import require

R_MAX, D_MAX = 3.0, 5.0  # how far renormalisation may correct scale and shift: Ioffe 2017, section 4.1


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
