"""Adam on a group's flat buffer, and gradient clipping per seed.

Written here (and tested against torch.optim.Adam) so that a whole update can be compiled and captured as one function:
the learning rate and the step are tensors, since a captured graph freezes Python numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_training.engine.groups import GroupLayout, Groups
from rl_training.models.parts import square_root


@dataclass(frozen=True)
class Adam:
    """Kingma and Ba 2015. With `max_grad_norm`, each seed's gradient over the groups of a phase is clipped to it."""

    eps: float = 1e-8
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float | None = None


def adam_(
    flat: Tensor, grad: Tensor, mean: Tensor, square: Tensor, powers: Tensor, rate: Tensor, optimizer: Adam
) -> None:
    """Take one step in place. `powers` holds beta1**t and beta2**t in float64, where t counts this step too.

    The caller updates them by multiplication: computed here, compiled code would repeat the power for each vector.
    """
    beta1, beta2 = optimizer.betas
    mean.lerp_(grad, 1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    step_size = (rate / (1 - powers[0])).to(torch.float32)
    correction = square_root(1 - powers[1]).to(torch.float32)
    denominator = square_root(square).div_(correction).add_(optimizer.eps)
    flat.sub_(mean.div(denominator).mul_(step_size))


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
