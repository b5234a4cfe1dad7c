"""Terms of losses, shared by the algorithms and `loss_functions.py`; all for one seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rl_training.engine.networks import Batch
from rl_training.engine.phases import Metrics
from rl_training.models.parts import midpoints


def as_rows(values: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a public loss with (batch, 1) columns as (batch,): columns would silently broadcast."""

    def row(value: Any) -> Any:
        return value.squeeze(1) if isinstance(value, Tensor) and value.ndim == 2 and value.shape[1] == 1 else value

    return {name: row(value) for name, value in values.items()}


def td_target(batch: Batch, gamma: float, next_value: Tensor) -> Tensor:
    """r + gamma * V(s'), with V = 0 at a terminal state. `dones` means terminated: a time limit is not terminal.

    `next_value` may have further axes (atoms, quantiles). With n-step returns the discounts are in the batch.
    """
    discount = batch.get("discounts", gamma) * (1 - batch["dones"])
    more = (1,) * (next_value.ndim - 1)
    return (batch["rewards"].view(-1, *more) + discount.view(-1, *more) * next_value).detach()


def ensemble_squared_error(values: Tensor, target: Tensor) -> Tensor:
    """(members, batch) against (batch,): the mean over the batch, summed over the members."""
    return (values - target).square().mean(-1).sum()


def joined_rows(first: Any, second: Any) -> Any:
    """The rows of two batches of tensors, or of observations with arrays by name, one batch after the other."""
    if isinstance(first, Mapping):
        return {name: torch.cat([first[name], second[name]]) for name in first}
    return torch.cat([first, second])


def joined_pass(
    critic: Callable[..., Tensor], current: tuple[Any, Tensor], following: tuple[Any, Tensor]
) -> tuple[Tensor, Tensor]:
    """Outputs (members, batch, ...) for two batches of (obs, actions) in one pass: they share batch statistics.

    No gradient flows through the second batch's outputs; through the statistics it does.
    """
    outputs = critic(*(joined_rows(one, other) for one, other in zip(current, following, strict=True)))
    own, others = outputs.chunk(2, 1)
    return own, others.detach()


def soft_policy_term(alpha: Tensor | float, logprobs: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """SAC's policy loss, (batch,) log-densities against values, and its entropy part."""
    entropy_term = (alpha * logprobs).mean()
    return entropy_term - value.mean(), entropy_term


def deterministic_policy_term(values: Tensor) -> Tensor:
    """The policy loss of (members, batch) values: the actor maximises the smallest of each row."""
    return -values.amin(0).mean()


def advantage_weights(advantage: Tensor, beta: float, max_weight: float) -> Tensor:
    return (beta * advantage).exp().clamp(max=max_weight).detach()


def weighted_cloning_term(weights: Tensor, logprobs: Tensor) -> Tensor:
    """The negative log-likelihood of recorded actions, each with its weight."""
    return -(weights * logprobs).mean()


def expectile_error(difference: Tensor, expectile: float) -> Tensor:
    """|expectile - 1(difference < 0)| * difference^2: below 0.5, negative differences have the larger weight."""
    below = (difference.detach() < 0).float()
    return (expectile - below).abs() * difference.square()


def expectile_term(target_value: Tensor, value: Tensor, expectile: float) -> Tensor:
    return expectile_error(target_value - value, expectile).mean()


def chosen(values: Tensor, actions: Tensor) -> Tensor:
    """The value of each row's action: (batch, actions, ...) -> (batch, ...).

    A masked sum, since the gradient of `gather` compiles to atomic additions, whose order is not deterministic.
    """
    every = torch.arange(values.shape[1], device=values.device).view(1, -1, *(1,) * (values.ndim - 2))
    taken = every == actions.long().view(-1, *(1,) * (values.ndim - 1))
    return torch.where(taken, values, 0.0).sum(1)


def chosen_by_members(values: Tensor, actions: Tensor) -> Tensor:
    """The same for an ensemble: (members, batch, actions) -> (members, batch)."""
    return chosen(values.permute(1, 2, 0), actions).T


def expected(log_probs: Tensor, values: Tensor) -> Tensor:
    """The expectation of (batch, actions) values under a policy over discrete actions: (batch,)."""
    return (log_probs.exp() * values).sum(-1)


def huber(difference: Tensor, kappa: float = 1.0) -> Tensor:
    """The Huber loss: quadratic within `kappa`, linear beyond.

    Its first derivative is a constant to autograd, which saves half of the backward pass: there is no second one.
    """
    gradient = difference.detach().clamp(-kappa, kappa)
    return gradient * (difference - 0.5 * gradient)


def quantile_huber(quantiles: Tensor, target: Tensor, kappa: float, levels: Tensor | None = None) -> Tensor:
    """(batch, N) predicted quantiles against (batch, M) target samples: a loss for each row.

    Dabney et al. 2018, eq. 10: sum over the predicted quantiles, mean over the target's. The predictions are at
    `levels` (batch, N), by default the midpoints of N equal intervals.
    """
    levels = midpoints(quantiles.shape[1], quantiles.device) if levels is None else levels
    error = target.unsqueeze(1) - quantiles.unsqueeze(2)  # (batch, N, M)
    levels = levels.unsqueeze(-1)
    weight = torch.where(error.detach() < 0, 1 - levels, levels)
    return (weight * huber(error, kappa)).mean(2).sum(1) / kappa


def ensemble_quantile_huber(quantiles: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """(members, batch, quantiles) against (batch, samples): the quantile Huber loss, averaged over all axes."""
    return quantile_huber(quantiles.flatten(0, 1), target.repeat(len(quantiles), 1), kappa).mean() / quantiles.shape[-1]


def value_terms(q: Tensor, target: Tensor, row_losses: Tensor, batch: Batch) -> Metrics:
    """The loss and metrics of DQN and its variants, from values of the taken actions and targets (batch,)."""
    weights = batch.get("weights")  # importance weights of a prioritised replay
    return {
        "loss": (row_losses if weights is None else weights * row_losses).mean(),
        "q_value_mean": q.mean(),
        "target_mean": target.mean(),
        "td_error_mean": (q - target).abs().mean(),
    }


def categorical_projection(support: Tensor, probabilities: Tensor, atoms: Tensor) -> Tensor:
    """Project `probabilities` at `support` (batch, N) onto the fixed, even `atoms` (N,). Bellemare et al. 2017.

    Each probability is split between its two neighbouring atoms by linear interpolation.
    """
    step = (atoms[-1] - atoms[0]) / (len(atoms) - 1)
    clipped = support.clamp(atoms[0], atoms[-1])
    share = (1 - (clipped.unsqueeze(1) - atoms.view(1, -1, 1)).abs() / step).clamp(min=0)  # (batch, atoms, N)
    return (share * probabilities.unsqueeze(1)).sum(2)


def ensemble_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """(members, batch, atoms) against probabilities (batch, atoms): the cross-entropy, averaged over the first axes."""
    return -(target * logits.log_softmax(-1)).sum(-1).mean()
