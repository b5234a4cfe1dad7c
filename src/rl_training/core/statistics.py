"""Statistics over seeds and tasks, as in rliable (Agarwal et al. 2021): interquartile mean, intervals, profiles.

`Scores` are one array of runs for each task, with the runs on the last axis; leading axes are bootstrap samples, so a
statistic of all of them is one call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Values = Sequence[float] | NDArray[np.floating]
Statistic = Callable[[Array], float]
Scores = Sequence[Array]
Aggregate = Callable[[Scores], Array]

LEVEL = 0.95
RESAMPLES = 2000
MAX_PAIRS = 4_000_000  # comparisons of two runs held in memory at once

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
    """Mean of the middle half: `scipy.stats.trim_mean(values, 0.25)`.

    It trims whole values, floor(n / 4) at each end, so three values or fewer give the plain mean.
    """
    return float(aggregate_iqm([_checked(values)]))


def bootstrap_interval(
    values: Values,
    statistic: Statistic = interquartile_mean,
    level: float = LEVEL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile bootstrap interval of `statistic`, drawing whole seeds with replacement; deterministic."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    sample = _checked(values)
    picks = np.random.default_rng(seed).integers(len(sample), size=(resamples, len(sample)))
    if statistic is interquartile_mean:  # all at once: bit for bit the same, and many times as fast
        estimates = aggregate_iqm([sample[picks]])
    else:
        estimates = np.array([statistic(sample[pick]) for pick in picks])
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


def aggregate_iqm(scores: Scores) -> Array:
    """Mean of the middle half of all runs of all tasks; it trims whole runs."""
    ordered = np.sort(np.concatenate(scores, axis=-1), axis=-1)
    runs = ordered.shape[-1]
    cut = runs // 4
    return np.asarray(ordered[..., cut : runs - cut].mean(axis=-1))


def aggregate_mean(scores: Scores) -> Array:
    """Mean over tasks of the mean over runs."""
    return np.asarray(_task_means(scores).mean(axis=-1))


def aggregate_median(scores: Scores) -> Array:
    """Median over tasks of the mean over runs: rliable's median."""
    return np.asarray(np.median(_task_means(scores), axis=-1))


def optimality_gap(scores: Scores, target: float = 1.0) -> Array:
    """How much the runs miss `target` on average; runs above it count as having reached it."""
    return target - aggregate_mean([np.minimum(task, target) for task in scores])


def performance_profile(scores: Scores, thresholds: Sequence[float] | Array) -> Array:
    """The fraction of runs whose score is above each threshold, as the last axis."""
    runs = np.concatenate(scores, axis=-1)
    return np.stack([(runs > threshold).mean(axis=-1) for threshold in thresholds], axis=-1)


def probability_of_improvement(first: Scores, second: Scores) -> Array:
    """The probability that a run of `first` is better than one of `second` on a random task; a draw counts half."""
    if len(first) != len(second):
        raise ValueError(f"both need the same tasks, got {len(first)} and {len(second)}")
    better = np.stack([_better(x, y) for x, y in zip(first, second, strict=True)], axis=-1)
    return np.asarray(better.mean(axis=-1))


def stratified_interval(
    scores: Scores, statistic: Aggregate, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Array, Array]:
    """Percentile interval of `statistic`, drawing runs with replacement within each task; deterministic."""
    return _percentiles(statistic(_resampled(scores, resamples, np.random.default_rng(seed))), level)


def improvement_interval(
    first: Scores, second: Scores, level: float = LEVEL, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[float, float]:
    """Interval of the probability of improvement; the runs of the two are drawn independently."""
    random = np.random.default_rng(seed)
    low, high = _percentiles(
        probability_of_improvement(_resampled(first, resamples, random), _resampled(second, resamples, random)), level
    )
    return float(low), float(high)


def _task_means(scores: Scores) -> Array:
    return np.stack([task.mean(axis=-1) for task in scores], axis=-1)


def _resampled(scores: Scores, resamples: int, random: np.random.Generator) -> list[Array]:
    return [task[random.integers(len(task), size=(resamples, len(task)))] for task in scores]


def _better(first: Array, second: Array) -> Array:
    """The fraction of pairs in which the run of `first` is the better one; in blocks, since all pairs may not fit."""
    shape = np.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    x, y = (one.reshape(-1, one.shape[-1]) for one in (first, second))
    block = max(1, MAX_PAIRS // (x.shape[-1] * y.shape[-1]))
    parts = []
    for start in range(0, len(x), block):
        difference = np.sign(x[start : start + block, :, None] - y[start : start + block, None, :])
        parts.append(0.5 + 0.5 * difference.mean(axis=(-2, -1)))
    return np.concatenate(parts).reshape(shape)


def _percentiles(estimates: Array, level: float) -> tuple[Array, Array]:
    low, high = np.quantile(estimates, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def _checked(values: Values) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"expected a non-empty list of numbers, got shape {array.shape}")
    return array
