"""Terms that several algorithms share. Each is one seed's maths."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from rl_training.engine.phases import Batch


def td_target(batch: Batch, gamma: float, next_value: Tensor) -> Tensor:
    """r + gamma * V(s'), with nothing behind a terminal state. `dones` means terminated: a time limit is not one."""
    return (batch["rewards"] + gamma * (1 - batch["dones"]) * next_value).detach()


def ensemble_squared_error(values: Tensor, target: Tensor) -> Tensor:
    """(members, batch) against (batch,): the mean over the batch, summed over the members."""
    return (values - target).square().mean(-1).sum()


def chosen(values: Tensor, actions: Tensor) -> Tensor:
    """The value of each row's action: (batch, actions, ...) -> (batch, ...)."""
    index = actions.long().view(-1, *([1] * (values.ndim - 1))).expand(-1, 1, *values.shape[2:])
    return values.gather(1, index).squeeze(1)


def huber(difference: Tensor, kappa: float = 1.0) -> Tensor:
    """Quadratic within `kappa`, linear beyond."""
    size = difference.abs()
    return F.relu(size - kappa) * kappa + 0.5 * size.clamp(max=kappa).square()
