"""Interquartile mean and bootstrap interval against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rl_training.core.statistics import bootstrap_interval, headline, interquartile_mean, summarize


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7.0], 7.0),
        ([1.0, 2.0, 9.0], 4.0),  # three values: nothing is trimmed
        ([100.0, 2.0, 4.0, -50.0], 3.0),  # one off each end
        ([0.0, 1.0, 2.0, 3.0, 100.0], 2.0),  # floor(5 / 4) = 1 off each end
        ([8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0, 40.0], 5.25),  # (3 + 5 + 6 + 7) / 4
    ],
)
def test_interquartile_mean_trims_whole_values(values: list[float], expected: float) -> None:
    assert interquartile_mean(values) == pytest.approx(expected)


def test_interval_is_deterministic_and_holds_the_statistic() -> None:
    values = list(np.random.default_rng(1).normal(100, 15, size=16))
    low, high = bootstrap_interval(values)
    assert (low, high) == bootstrap_interval(values)
    assert (low, high) != bootstrap_interval(values, seed=1)
    assert min(values) < low < interquartile_mean(values) < high < max(values)


def test_wider_level_gives_wider_interval_and_statistic_is_used() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0, 20.0]
    narrow, wide = bootstrap_interval(values, level=0.5), bootstrap_interval(values, level=0.99)
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
    assert bootstrap_interval(values, statistic=lambda sample: float(len(sample))) == (6.0, 6.0)


def test_mean_interval_agrees_with_the_normal_one() -> None:
    values = np.random.default_rng(0).normal(0, 1, size=400)
    low, high = bootstrap_interval(values, statistic=lambda sample: float(sample.mean()))
    half = 1.96 * values.std() / np.sqrt(400)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.015)


@pytest.mark.parametrize("runs", [2, 5, 8, 16, 33])
def test_the_fast_interval_of_the_interquartile_mean_has_the_bits_of_the_general_one(runs: int) -> None:
    values = np.random.default_rng(runs).normal(-300, 80, size=runs)
    general = bootstrap_interval(values, statistic=lambda sample: interquartile_mean(sample))
    assert bootstrap_interval(values) == general


def test_summary() -> None:
    assert summarize([3.0]) == {
        "statistic": "mean", "iqm": 3.0, "interval": (3.0, 3.0), "mean": 3.0, "std": 0.0, "n": 1,
    }  # fmt: skip
    summary = summarize([2.0, 4.0, 6.0, 12.0])
    assert (summary["iqm"], summary["mean"], summary["n"]) == (5.0, 6.0, 4)
    assert summary["std"] == pytest.approx(np.sqrt(14.0))


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]]])
def test_bad_values_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="non-empty list"):
        interquartile_mean(values)


def test_fewer_than_four_seeds_are_summarized_as_a_mean() -> None:
    three, four = summarize([2.0, 4.0, 6.0]), summarize([2.0, 4.0, 6.0, 12.0])
    assert three["statistic"] == "mean" and headline(three) == "4.0 +- 1.6 (mean and spread of 3 seeds)"
    assert four["statistic"] == "interquartile mean"
    assert headline(four).startswith("5.0 (interquartile mean of 4 seeds, 95% interval ")
