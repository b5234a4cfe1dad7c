"""Optimizers on a group's flat buffer, and gradient clipping per seed.

Written here (and tested against torch.optim) so that a whole update can be compiled and captured as one function:
the learning rate and the step are tensors, since a captured graph freezes Python numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import torch
from torch import Tensor

from rl_training.config.settings import TrainSettings
from rl_training.engine.groups import GroupLayout, Groups
from rl_training.models.layers import square_root

TINY = 1e-300  # above zero in float64


@dataclass(frozen=True)
class Optimizer:
    """A rule for one step. With `max_grad_norm`, each seed's gradient over the groups of a phase is clipped to it."""

    _: KW_ONLY
    weight_decay: float = 0.0
    max_grad_norm: float | None = None

    @property
    def used_slots(self) -> Sequence[str]:
        """The names of its state; each slot has one number for every parameter."""
        return ()

    @property
    def powers(self) -> tuple[float, float]:
        """Two numbers below 1, whose powers by the steps taken are passed to `step_`."""
        return 0.5, 0.5

    def step_(self, flat: Tensor, grad: Tensor, state: Sequence[Tensor], powers: Tensor, rate: Tensor) -> None:
        """Take one step in place; `state` has a tensor for each slot, `powers` (float64) counts this step too.

        The caller updates them by multiplication: computed here, compiled code would repeat the power for each vector.
        """
        raise NotImplementedError

    def decayed(self, grad: Tensor, flat: Tensor) -> Tensor:
        """The gradient with that of the weight decay."""
        return grad + self.weight_decay * flat if self.weight_decay else grad


@dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba 2015."""

    eps: float = 1e-8
    betas: tuple[float, float] = (0.9, 0.999)

    @property
    def used_slots(self) -> Sequence[str]:
        return "adam_mean", "adam_square"

    @property
    def powers(self) -> tuple[float, float]:
        return self.betas

    def step_(self, flat: Tensor, grad: Tensor, state: Sequence[Tensor], powers: Tensor, rate: Tensor) -> None:
        mean, square = self._moments(self.decayed(grad, flat), state)
        step_size = (rate / (1 - powers[0])).to(torch.float32)
        flat.sub_(mean.div(self._denominator(square, powers)).mul_(step_size))

    def _moments(self, grad: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        (beta1, beta2), (mean, square) = self.betas, state
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        return mean, square

    def _denominator(self, square: Tensor, powers: Tensor) -> Tensor:
        correction = square_root(1 - powers[1]).to(torch.float32)
        return square_root(square).div_(correction).add_(self.eps)


@dataclass(frozen=True)
class AdamW(Adam):
    """Loshchilov and Hutter 2019: the weight decay is not part of the gradient."""

    _: KW_ONLY
    weight_decay: float = 1e-2

    def step_(self, flat: Tensor, grad: Tensor, state: Sequence[Tensor], powers: Tensor, rate: Tensor) -> None:
        flat.mul_((1 - rate * self.weight_decay).to(torch.float32))
        super().step_(flat, grad, state, powers, rate)

    def decayed(self, grad: Tensor, flat: Tensor) -> Tensor:
        return grad


@dataclass(frozen=True)
class RAdam(Adam):
    """Liu et al. 2020: the first steps, in which the variance of the adaptive rate is unknown, are not adaptive."""

    def step_(self, flat: Tensor, grad: Tensor, state: Sequence[Tensor], powers: Tensor, rate: Tensor) -> None:
        mean, square = self._moments(self.decayed(grad, flat), state)
        beta2, power = self.betas[1], powers[1]
        max_length = 2 / (1 - beta2) - 1
        steps = (power.clamp_min(TINY).log() / math.log(beta2)).round()  # where the power is 0, so is their product
        length = max_length - 2 * steps * power / (1 - power)
        known = (length - 4) * (length - 2) * max_length / ((max_length - 4) * (max_length - 2) * length)
        scale = square_root(known.clamp_min(TINY) * (1 - power)).to(torch.float32)
        adaptive = scale / (square_root(square) + self.eps)
        step_size = (rate / (1 - powers[0])).to(torch.float32)
        flat.sub_(mean * torch.where(length > 5, adaptive, 1.0) * step_size)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Hinton 2012, as in torch.optim.RMSprop."""

    eps: float = 1e-8
    alpha: float = 0.99
    momentum: float = 0.0
    centered: bool = False

    @property
    def used_slots(self) -> Sequence[str]:
        used = {"rms_square": True, "rms_mean": self.centered, "momentum": self.momentum > 0}
        return [slot for slot, wanted in used.items() if wanted]

    def step_(self, flat: Tensor, grad: Tensor, state: Sequence[Tensor], powers: Tensor, rate: Tensor) -> None:
        grad, own = self.decayed(grad, flat), dict(zip(self.used_slots, state, strict=True))
        square = own["rms_square"].mul_(self.alpha).addcmul_(grad, grad, value=1 - self.alpha)
        if self.centered:
            square = (square - own["rms_mean"].lerp_(grad, 1 - self.alpha).square()).clamp_min(0)
        move = grad / (square_root(square) + self.eps)
        if self.momentum:
            move = own["momentum"].mul_(self.momentum).add_(move)
        flat.sub_(move * rate.to(torch.float32))


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, as in torch.optim.SGD."""

    momentum: float = 0.0
    dampening: float = 0.0
    nesterov: bool = False

    @property
    def used_slots(self) -> Sequence[str]:
        return ("momentum",) if self.momentum else ()

    def step_(self, flat: Tensor, grad: Tensor, state: Sequence[Tensor], powers: Tensor, rate: Tensor) -> None:
        move = self.decayed(grad, flat)
        if self.momentum:
            first = powers[0] == self.powers[0]  # torch.optim does not dampen the first gradient
            share = torch.where(first, 1.0, 1 - self.dampening).to(torch.float32)
            average = state[0].mul_(self.momentum).add_(move * share)
            move = move + self.momentum * average if self.nesterov else average
        flat.sub_(move * rate.to(torch.float32))


OPTIMIZERS: dict[str, Any] = {"Adam": Adam, "AdamW": AdamW, "RAdam": RAdam, "RMSprop": RMSprop, "SGD": SGD}


def optimizer_of(settings: TrainSettings) -> Optimizer:
    """The optimizer of an algorithm's settings."""
    cls = OPTIMIZERS[settings.optimizer.name]
    eps = {"eps": settings.adam_eps} if "eps" in cls.__dataclass_fields__ else {}
    made: Optimizer = cls(**{**eps, **settings.optimizer.options}, max_grad_norm=settings.max_grad_norm)
    return made


def clip_per_seed(grads: Groups, layouts: Mapping[str, GroupLayout], max_norm: float) -> Groups:
    """Scale each seed's gradient, over all groups of the phase, down to `max_norm`; seeds never mix."""
    squares = []
    for group, tensors in grads.items():
        for name, tensor in tensors.items():
            columns = (1, *layouts[group].shapes[name])[-1]  # a scalar, such as a temperature, has no axis
            squares.append(tensor.reshape(layouts[group].seeds, -1, columns).square().sum(1).sum(-1))
    # Summed in a fixed order: one sum over everything would round differently for a seed alone.
    norm = square_root(sum(squares[1:], squares[0]))
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return {
        group: {name: t.reshape(scale.shape[0], -1) * scale.unsqueeze(-1) for name, t in tensors.items()}
        for group, tensors in grads.items()
    }
