"""Distributions over actions, as functions of the numbers that an actor's network returns.

Each computes the same bits for one seed and for stacked seeds on a CPU, whatever the batch around a row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.core.specs import ArraySpec
from rl_training.models.parts import gaussian_log_density

# Logits of choices that are not allowed, and of those that an element does not have. Finite, so that no probability of
# 0 is multiplied by infinity; the second is lower, so that a row with nothing allowed still gives a valid action.
MASKED, PADDED = -1e30, -1e35
UNIFORM_MIN, UNIFORM_MAX = torch.finfo(torch.float32).tiny, 1 - 2**-24


class ActionDistribution(ABC):
    """A distribution over actions: `params` are (rows, outputs), `mask` (rows, outputs) is true where allowed.

    Random numbers are an input: `noise` says which. Actions are in the library's form, those of `ArraySpec`.
    """

    outputs: int  # numbers per row that the actor's network returns

    @abstractmethod
    def noise(self, rows: int) -> tuple[str, tuple[int, ...]]:
        """The kind and shape of the random numbers that `sample` needs."""

    @abstractmethod
    def sample(self, params: Tensor, noise: Tensor, mask: Tensor | None = None) -> Tensor:
        """Random actions."""

    @abstractmethod
    def mode(self, params: Tensor, mask: Tensor | None = None) -> Tensor:
        """The most probable actions."""

    @abstractmethod
    def log_prob(self, params: Tensor, actions: Tensor, mask: Tensor | None = None) -> Tensor:
        """The logarithm of the probability, or density, of each row's action: (rows,)."""

    @abstractmethod
    def entropy(self, params: Tensor, mask: Tensor | None = None) -> Tensor:
        """(rows,)."""


class Categorical(ActionDistribution):
    """Independent categorical distributions, one for each element of an action, which has `choices` of its own.

    `params` are the logits of all elements, one after the other. With `joint`, an action is one index, counted in C
    order as by numpy.ravel_multi_index; else it has one index for each element.
    """

    def __init__(self, choices: Sequence[int], joint: bool) -> None:
        self.choices, self.joint, self.outputs = tuple(choices), joint, sum(choices)
        self.strides = [math.prod(self.choices[number + 1 :]) for number in range(len(self.choices))]
        self.runs = [(count, len(list(run))) for count, run in groupby(self.choices)]  # of elements of equal choices

    def noise(self, rows: int) -> tuple[str, tuple[int, ...]]:
        return "uniform", (rows, self.outputs)

    def sample(self, params: Tensor, noise: Tensor, mask: Tensor | None = None) -> Tensor:
        """By the Gumbel-max trick: the largest of the logits, each plus -log(-log(uniform number))."""
        gumbels = -(-noise.clamp(UNIFORM_MIN, UNIFORM_MAX).log()).log()
        return self._best(params, mask, gumbels)

    def mode(self, params: Tensor, mask: Tensor | None = None) -> Tensor:
        return self._best(params, mask)

    def log_prob(self, params: Tensor, actions: Tensor, mask: Tensor | None = None) -> Tensor:
        log_probs = self._log_probs(params, mask)
        # A masked sum, since the gradient of `gather` compiles to atomic additions, whose order is not deterministic.
        taken = torch.arange(log_probs.shape[-1], device=params.device) == self._elements(actions.long()).unsqueeze(-1)
        return torch.where(taken, log_probs, 0.0).sum(-1).sum(-1)

    def entropy(self, params: Tensor, mask: Tensor | None = None) -> Tensor:
        log_probs = self._log_probs(params, mask)
        return -(log_probs.exp() * log_probs).sum(-1).sum(-1)

    def _log_probs(self, params: Tensor, mask: Tensor | None) -> Tensor:
        return F.log_softmax(self._by_element(_masked(params, mask)), -1)

    def _by_element(self, values: Tensor) -> Tensor:
        """(rows, outputs) -> (rows, elements, most choices), padded where an element has fewer."""
        width = max(self.choices)
        if len(self.choices) == 1:
            return values.unsqueeze(-2)
        runs = values.split([count * length for count, length in self.runs], -1)
        shaped: list[Tensor] = [run.unflatten(-1, (-1, count)) for run, (count, _) in zip(runs, self.runs, strict=True)]
        if len(shaped) == 1:
            return shaped[0]
        return torch.cat([F.pad(one, (0, width - one.shape[-1]), value=PADDED) for one in shaped], -2)

    def _best(self, params: Tensor, mask: Tensor | None, bonuses: Tensor | None = None) -> Tensor:
        """The actions with the largest sums of logit and bonus."""
        # A diverged network's logit of -infinity must not be below those of choices that are not there.
        finite = params.clamp(min=MASKED / 10)
        logits = _masked(finite, mask)
        best = self._by_element(logits if bonuses is None else logits + bonuses).argmax(-1)
        if not self.joint:
            return best
        if len(self.choices) == 1:
            return best.squeeze(-1)
        return torch.stack([stride * best[..., number] for number, stride in enumerate(self.strides)]).sum(0)

    def _elements(self, actions: Tensor) -> Tensor:
        """The index of each element: (rows, elements)."""
        if not self.joint:
            return actions
        pairs = zip(self.strides, self.choices, strict=True)
        return torch.stack([actions // stride % count for stride, count in pairs], -1)


def _masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    return logits if mask is None else torch.where(mask, logits, MASKED)


class Gaussian(ActionDistribution):
    """A normal distribution for each of `size` elements, unbounded; `params` are the means, then the log_stds.

    There are no masks of continuous actions.
    """

    def __init__(self, size: int) -> None:
        self.size, self.outputs = size, 2 * size

    def noise(self, rows: int) -> tuple[str, tuple[int, ...]]:
        return "normal", (rows, self.size)

    def sample(self, params: Tensor, noise: Tensor, mask: Tensor | None = None) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        return mean + log_std.exp() * noise

    def mode(self, params: Tensor, mask: Tensor | None = None) -> Tensor:
        return params.chunk(2, -1)[0]

    def log_prob(self, params: Tensor, actions: Tensor, mask: Tensor | None = None) -> Tensor:
        mean, log_std = params.chunk(2, -1)
        return gaussian_log_density(mean, log_std, actions)

    def entropy(self, params: Tensor, mask: Tensor | None = None) -> Tensor:
        return (params.chunk(2, -1)[1] + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)


def distribution_of(action: ArraySpec) -> ActionDistribution:
    """Categorical distributions for discrete actions, a Gaussian for continuous ones."""
    if action.kind == "continuous":
        return Gaussian(action.size)
    return Categorical(action.multi_choices or (action.choices,), joint=action.kind == "discrete")
