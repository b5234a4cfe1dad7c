"""Returns, advantages and their statistics against numbers worked out by hand and plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.algorithms.returns import (
    discounted_sums,
    gae,
    lambda_returns,
    merged_statistics,
    return_scale,
    standardized,
)

# Five steps of one environment: the second ends in a terminal state, the fourth at a time limit, and the rollout ends
# in the middle of the third episode.
ROLLOUT = {
    "rewards": torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]),
    "terminated": torch.tensor([[False, True, False, False, False]]),
    "truncated": torch.tensor([[False, False, False, True, False]]),
}
NEXT_VALUES = torch.tensor([[3.0, 99.0, 4.0, 6.0, 8.0]])  # of the true successors; nothing counts 99


def plain_sums(terms: Tensor, factors: Tensor) -> Tensor:
    sums = terms.clone()
    for step in range(terms.shape[-1] - 2, -1, -1):
        sums[..., step] += factors[..., step] * sums[..., step + 1]
    return sums


@pytest.mark.parametrize("length", [*range(1, 18), 31, 32, 33, 100, 1000])
def test_discounted_sums_are_those_of_a_loop(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    terms = torch.randn(2, 3, length, generator=generator, dtype=torch.float64)
    factors = torch.rand(2, 3, length, generator=generator, dtype=torch.float64)
    factors *= torch.rand(2, 3, length, generator=generator) > 0.1  # an episode ends now and then
    torch.testing.assert_close(discounted_sums(terms, factors), plain_sums(terms, factors))


def test_advantages_by_hand() -> None:
    """gamma = lambda = 0.5, so an advantage has a quarter of the next; values are 1.

    Errors: 1 + 1.5 - 1 = 1.5; 2 - 1 = 1; 3 + 2 - 1 = 4; 4 + 3 - 1 = 6; 5 + 4 - 1 = 8.
    """
    found = gae(ROLLOUT, torch.ones(1, 5), NEXT_VALUES, 0.5, 0.5)
    assert found.tolist() == [[1.5 + 0.25, 1.0, 4 + 0.25 * 6, 6.0, 8.0]]


def test_lambda_returns_by_hand() -> None:
    """Half of the next step's return and half of the best value there; an episode's last step has the value alone."""
    found = lambda_returns(ROLLOUT, NEXT_VALUES, 0.5, 0.5)
    third = 3 + 0.5 * (0.5 * 7 + 0.5 * 4)
    assert found.tolist() == [[1 + 0.5 * (0.5 * 2 + 0.5 * 3), 2.0, third, 4 + 0.5 * 6, 5 + 0.5 * 8]]


@pytest.mark.parametrize(("share", "expected"), [(0.0, [2.5, 2.0, 5.0, 7.0, 9.0]), (1.0, [2.0, 2.0, 6.5, 7.0, 9.0])])
def test_lambda_returns_between_one_step_and_whole_episodes(share: float, expected: list[float]) -> None:
    assert lambda_returns(ROLLOUT, NEXT_VALUES, 0.5, share).tolist() == [expected]


def test_values_are_standardised_by_their_own_mean_and_deviation() -> None:
    found = standardized(torch.tensor([1.0, 3.0, 5.0, 7.0]))
    torch.testing.assert_close(found, torch.tensor([-3.0, -1.0, 1.0, 3.0]) / np.sqrt(20 / 3))
    assert standardized(torch.full((4,), 2.0)).tolist() == [0, 0, 0, 0]


def test_running_statistics_of_returns_are_those_of_all_of_them() -> None:
    names = ("return_count", "return_mean", "return_squares")
    running = {name: torch.zeros((), dtype=torch.float64) for name in names}
    assert return_scale(running) == pytest.approx(1.0)
    rng, seen = np.random.default_rng(0), []
    for rows in (1, 7, 300):
        seen.append(1e3 + rng.standard_normal((2, rows)).astype(np.float32) * rows)
        running = merged_statistics(running, torch.from_numpy(seen[-1]))
        every = np.concatenate([one.ravel() for one in seen]).astype(np.float64)
        assert running["return_count"] == every.size and running["return_mean"] == pytest.approx(every.mean())
        assert return_scale(running) == pytest.approx(every.std(), rel=1e-5)
