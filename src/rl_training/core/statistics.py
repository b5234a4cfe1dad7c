"""Summaries over seeds: the interquartile mean and its bootstrap interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

Values = Sequence[float] | NDArray[np.floating]
Statistic = Callable[[NDArray[np.float64]], float]


MIN_SEEDS_FOR_IQM = 4  # with fewer nothing is trimmed, and a bootstrap interval means little


class Summary(TypedDict):
    """Statistics of one value per seed."""

    statistic: str  # the one to show: `mean` for fewer than four seeds, else `interquartile mean`
    iqm: float
    interval: tuple[float, float]
    mean: float
    std: float
    n: int


def interquartile_mean(values: Values) -> float:
    """Mean of the middle half, as in rliable (Agarwal et al. 2021): `scipy.stats.trim_mean(values, 0.25)`.

    It trims whole values, floor(n / 4) at each end, so three values or fewer give the plain mean.
    """
    ordered = np.sort(_checked(values))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def bootstrap_interval(
    values: Values,
    statistic: Statistic = interquartile_mean,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of `statistic`, drawing whole seeds with replacement; deterministic."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    sample = _checked(values)
    picks = np.random.default_rng(seed).integers(len(sample), size=(resamples, len(sample)))
    estimates = [statistic(sample[pick]) for pick in picks]
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def summarize(values: Values) -> Summary:
    """Interquartile mean with its 95 % interval, mean and population standard deviation, one value per seed."""
    sample = _checked(values)
    only = float(sample[0])
    return {
        "statistic": "interquartile mean" if uses_iqm(len(sample)) else "mean",
        "iqm": interquartile_mean(sample),
        "interval": (only, only) if len(sample) == 1 else bootstrap_interval(sample),
        "mean": float(sample.mean()),
        "std": float(sample.std()),
        "n": len(sample),
    }


def uses_iqm(seeds: int) -> bool:
    """Whether a summary over this many seeds is shown as an interquartile mean with its interval, or as a mean."""
    return seeds >= MIN_SEEDS_FOR_IQM


def headline(summary: Summary) -> str:
    """A summary as text: `412.3 (interquartile mean of 8 seeds, 95% interval 390.1 to 430.9)`."""
    if uses_iqm(summary["n"]):
        low, high = summary["interval"]
        about = f"interquartile mean of {summary['n']} seeds, 95% interval {low:.1f} to {high:.1f}"
        return f"{summary['iqm']:.1f} ({about})"
    return f"{summary['mean']:.1f} +- {summary['std']:.1f} (mean and spread of {summary['n']} seeds)"


def _checked(values: Values) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"expected a non-empty list of numbers, got shape {array.shape}")
    return array
