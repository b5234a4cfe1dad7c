"""Returns and advantages of the steps of a rollout, and their running statistics."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_training.engine.networks import Batch

EPSILON = 1e-8  # added to a standard deviation or variance before dividing


def discounted_sums(terms: Tensor, factors: Tensor) -> Tensor:
    """The sums s[t] = terms[t] + factors[t] * s[t + 1] along the last axis, which end with the last term.

    In as many steps as the axis has binary digits: after each, a sum covers twice as many terms (Hillis and Steele
    1986).
    """
    sums, covered, length = terms, 1, terms.shape[-1]
    while covered < length:
        ahead = sums[..., covered:], factors[..., covered:]
        sums = torch.cat([sums[..., :-covered] + factors[..., :-covered] * ahead[0], sums[..., -covered:]], -1)
        factors = torch.cat([factors[..., :-covered] * ahead[1], factors[..., -covered:]], -1)
        covered *= 2
    return sums


def gae(rollout: Batch, values: Tensor, next_values: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimates (environments, steps).

    A terminal state has no value; a truncated episode continues with the value of its true last observation.
    """
    alive, ended = (~rollout["terminated"]).float(), rollout["terminated"] | rollout["truncated"]
    errors = rollout["rewards"] + gamma * alive * next_values - values
    return discounted_sums(errors, gamma * gae_lambda * (~ended).float())


def lambda_returns(rollout: Batch, next_values: Tensor, gamma: float, q_lambda: float) -> Tensor:
    """Returns (environments, steps) that mix those of every length, bootstrapped from the values of successors.

    An episode's last step has its whole successor's value, which is 0 in a terminal state.
    """
    ended = rollout["terminated"] | rollout["truncated"]
    share = q_lambda * (~ended).float()  # of the return that continues with the next step's
    share[..., -1] = 0.0
    bootstrap = gamma * (~rollout["terminated"]).float() * (1 - share) * next_values
    return discounted_sums(rollout["rewards"] + bootstrap, gamma * share)


def standardized(values: Tensor) -> Tensor:
    """Values with mean 0 and standard deviation 1."""
    if values.numel() == 1:  # it has no deviation
        return values
    return (values - values.mean()) / (values.std() + EPSILON)


def return_scale(running: dict[str, Tensor]) -> Tensor:
    """The running standard deviation of returns; 1 before there are any."""
    count = running["return_count"]
    variance = torch.where(count > 0, running["return_squares"] / count.clamp_min(1), 1.0)
    return (variance + EPSILON).sqrt().float()


def merged_statistics(running: dict[str, Tensor], returns: Tensor) -> dict[str, Tensor]:
    """The running statistics of returns with new ones (Chan et al. 1979)."""
    new = returns.double().flatten()
    before, count = running["return_count"], running["return_count"] + new.numel()
    difference = new.mean() - running["return_mean"]
    squares = (new - new.mean()).square().sum() + difference.square() * before * new.numel() / count
    return {
        "return_count": count,
        "return_mean": running["return_mean"] + difference * new.numel() / count,
        "return_squares": running["return_squares"] + squares,
    }
