"""Statistics over runs and tasks equal those of rliable 1.2.0 (`scripts/rliable_goldens.py` made its values)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.core.statistics import (
    aggregate_iqm,
    aggregate_mean,
    aggregate_median,
    bootstrap_interval,
    improvement_interval,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)

GOLDENS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "rliable.json").read_text())
AGGREGATES = {
    "iqm": aggregate_iqm,
    "mean": aggregate_mean,
    "median": aggregate_median,
    "optimality_gap": optimality_gap,
}
CASES = sorted(GOLDENS["cases"])


def scores(case: dict[str, Any], which: str) -> list[Any]:
    """One array for each task, of a matrix of runs and tasks."""
    return list(np.array(case[which]).T)


@pytest.mark.parametrize("name", CASES)
def test_point_estimates(name: str) -> None:
    case = GOLDENS["cases"][name]
    first, second = scores(case, "first"), scores(case, "second")
    for statistic, function in AGGREGATES.items():
        assert float(function(first)) == pytest.approx(case["points"][statistic], abs=1e-6), statistic
    assert float(probability_of_improvement(first, second)) == pytest.approx(case["points"]["improvement"], abs=1e-6)
    profile = performance_profile(first, GOLDENS["thresholds"])
    assert profile.tolist() == pytest.approx(case["profile"]["values"], abs=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_intervals_agree_within_bootstrap_error(name: str) -> None:
    """Two bootstraps of 3,000 samples: their ends differ by a fraction of the interval's width."""
    case = GOLDENS["cases"][name]
    first, second = scores(case, "first"), scores(case, "second")
    found = {key: stratified_interval(first, function, resamples=3000) for key, function in AGGREGATES.items()}
    found["improvement"] = improvement_interval(first, second, resamples=3000)  # type: ignore[assignment]
    for statistic, ends in found.items():
        low, high = case["intervals"][statistic]
        assert [float(end) for end in ends] == pytest.approx([low, high], abs=0.06 * (high - low)), statistic
    low, high = stratified_interval(first, lambda drawn: performance_profile(drawn, GOLDENS["thresholds"]))
    golden = np.array(case["profile"]["interval"])
    step = 1 / np.array(case["first"]).size  # a percentile of a fraction of runs jumps from one run to the next
    assert np.abs(np.stack([low, high]) - golden).max() <= 1.01 * step


def test_one_task_has_the_interval_of_a_runs_summary() -> None:
    values = np.random.default_rng(3).normal(100, 15, size=9)
    assert stratified_interval([values], aggregate_iqm) == pytest.approx(bootstrap_interval(values))


def test_tasks_may_have_different_numbers_of_runs() -> None:
    tasks = [np.array([1.0, 2.0, 3.0]), np.array([10.0])]
    assert float(aggregate_mean(tasks)) == 6.0 and float(aggregate_median(tasks)) == 6.0
    assert float(aggregate_iqm(tasks)) == 2.5  # 1, 2, 3, 10 without the first and the last
    low, high = stratified_interval(tasks, aggregate_mean)
    assert 5.5 <= float(low) <= float(high) <= 6.5  # the second task never changes


def test_probability_of_improvement_counts_draws_half_and_works_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = [np.array([1.0, 2.0])], [np.array([1.0, 0.0])]
    assert float(probability_of_improvement(first, second)) == 0.875
    whole = improvement_interval(first, second)
    monkeypatch.setattr("rl_training.core.statistics.MAX_PAIRS", 12)
    assert improvement_interval(first, second) == whole
    with pytest.raises(ValueError, match="same tasks"):
        probability_of_improvement(first, [*second, *second])
