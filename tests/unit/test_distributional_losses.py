"""Quantile Huber loss, categorical projection and n-step returns against hand-worked numbers and slow references."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rl_training.algorithms.losses import categorical_projection, huber, quantile_huber, td_target
from rl_training.core.specs import EnvSpec, discrete, vector
from rl_training.data.replay.buffer import ReplayBuffer


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
def test_huber_and_its_gradient_are_those_of_torch(kappa: float) -> None:
    size = torch.tensor([0.0, 0.1, kappa, 1.01 * kappa, 30.0])
    differences = [torch.cat((-size, size)).requires_grad_() for _ in range(2)]
    expected = F.huber_loss(differences[1], torch.zeros(10), reduction="none", delta=kappa)
    found = huber(differences[0], kappa)
    torch.testing.assert_close(found, expected)
    for loss in (found, expected):
        loss.sum().backward()
    assert torch.equal(differences[0].grad, differences[1].grad)


def test_quantile_huber_by_hand() -> None:
    # One row, quantiles (0, 1) at midpoints (1/4, 3/4), target samples (0.5, 3), kappa 1.
    # Errors u = target - quantile: 0.5, 3 for the first, -0.5, 2 for the second.
    # Huber: 0.125, 2.5 | 0.125, 1.5. Weights |tau - [u < 0]|: .25, .25 | |.75 - 1| = .25, .75.
    # First: (.25*.125 + .25*2.5)/2 = .328125; second: (.25*.125 + .75*1.5)/2 = .578125; sum .90625.
    loss = quantile_huber(torch.tensor([[0.0, 1.0]]), torch.tensor([[0.5, 3.0]]), 1.0)
    assert loss.tolist() == pytest.approx([0.90625])


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
def test_quantile_huber_against_loops(kappa: float) -> None:
    rng = np.random.default_rng(0)
    quantiles, target = rng.normal(size=(3, 4)) * 2, rng.normal(size=(3, 5)) * 2
    expected = np.zeros(3)
    for row in range(3):
        for i in range(4):
            for j in range(5):
                u = target[row, j] - quantiles[row, i]
                huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
                expected[row] += abs((i + 0.5) / 4 - (u < 0)) * huber / kappa / 5
    found = quantile_huber(torch.tensor(quantiles), torch.tensor(target), kappa)
    assert found.tolist() == pytest.approx(expected.tolist())


def test_projection_by_hand() -> None:
    # Atoms 0, 1, 2. Mass .5 at 0.25 goes .375 to 0 and .125 to 1; .3 at 5 is clipped to 2; .2 at exactly 1 stays.
    projected = categorical_projection(
        torch.tensor([[0.25, 5.0, 1.0]]), torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([0.0, 1.0, 2.0])
    )
    assert projected[0].tolist() == pytest.approx([0.375, 0.325, 0.3])


def test_projection_by_hand_on_atoms_half_a_step_apart() -> None:
    # Atoms 0, .5, 1. Mass .6 at .125 is a quarter of the way to .5: .45 stays at 0, .15 goes there; .4 at .75 halves.
    projected = categorical_projection(
        torch.tensor([[0.125, 0.75, 9.0]]), torch.tensor([[0.6, 0.4, 0.0]]), torch.tensor([0.0, 0.5, 1.0])
    )
    assert projected[0].tolist() == pytest.approx([0.45, 0.35, 0.2])


@pytest.mark.parametrize("count", [8, 15, 4])
def test_projection_against_loops_and_keeps_mass_and_mean(count: int) -> None:
    rng = np.random.default_rng(1)
    atoms, step = np.linspace(-3, 4, count), 7 / (count - 1)
    support, mass = rng.uniform(-5, 6, (6, count)), rng.dirichlet(np.ones(count), 6)
    expected = np.zeros((6, count))
    for row in range(6):
        for z, p in zip(support[row], mass[row], strict=True):
            place = (min(max(z, -3.0), 4.0) + 3) / step
            low, high = int(np.floor(place)), int(np.ceil(place))
            if low == high:
                expected[row, low] += p
            else:
                expected[row, low] += p * (high - place)
                expected[row, high] += p * (place - low)
    found = categorical_projection(torch.tensor(support), torch.tensor(mass), torch.tensor(atoms)).numpy()
    assert found == pytest.approx(expected)
    assert found.sum(1) == pytest.approx(np.ones(6))
    assert (found * atoms).sum(1) == pytest.approx((support.clip(-3, 4) * mass).sum(1))


def filled(num_envs: int, steps: int, capacity: int, n_step: int, ends: dict[int, str]) -> ReplayBuffer:
    """Step t of environment e has reward 10*t + e, obs t, next_obs t + 1; `ends` says where environment 0 ends."""
    shape = EnvSpec(vector(1), discrete(2))
    replay = ReplayBuffer(shape, capacity=capacity, num_envs=num_envs, seeds=1, n_step=n_step, gamma=0.5)
    for t in range(steps):
        column = np.arange(num_envs)[None]
        here = np.zeros((1, num_envs), bool)
        here[0, 0] = t in ends
        replay.add(
            obs=np.full((1, num_envs, 1), t, np.float32),
            actions=np.zeros((1, num_envs), np.int64),
            rewards=(10 * t + column).astype(np.float32),
            next_obs=np.full((1, num_envs, 1), t + 1, np.float32),
            terminated=here & (ends.get(t) == "terminated"),
            truncated=here & (ends.get(t) == "truncated"),
        )
    return replay


def row(replay: ReplayBuffer, index: int) -> dict[str, float]:
    return {name: float(value[0, 0]) for name, value in replay.gather(torch.tensor([[index]])).items()}


def test_n_step_by_hand() -> None:
    replay = filled(1, 6, 20, 3, {3: "terminated"})
    # From step 0: 0 + .5*10 + .25*20 = 10, then the value of observation 3 with discount .125.
    expected = {"obs": 0, "actions": 0, "rewards": 10, "next_obs": 3, "dones": 0, "discounts": 0.125}
    assert row(replay, 0) == expected
    # From step 2: 20 + .5*30 = 35, and there the episode ends.
    assert row(replay, 2) == {"obs": 2, "actions": 0, "rewards": 35, "next_obs": 4, "dones": 1, "discounts": 0.25}
    # From step 4: 40 + .5*50 = 65; step 6 has not happened, so the value of observation 6 stands for the rest.
    assert row(replay, 4) == {"obs": 4, "actions": 0, "rewards": 65, "next_obs": 6, "dones": 0, "discounts": 0.25}


def test_n_step_stops_at_a_time_limit_and_bootstraps_there() -> None:
    replay = filled(1, 6, 20, 3, {3: "truncated"})
    assert row(replay, 2) == {"obs": 2, "actions": 0, "rewards": 35, "next_obs": 4, "dones": 0, "discounts": 0.25}


@pytest.mark.parametrize("steps", [5, 17, 40])
def test_n_step_against_a_walk_with_several_environments_after_the_ring_wrapped(steps: int) -> None:
    num_envs, capacity, n_step = 3, 24, 4
    ends = {t: "terminated" if t % 2 else "truncated" for t in range(0, steps, 5)}
    replay = filled(num_envs, steps, capacity, n_step, ends)
    for index in range(replay.size):
        newest = [number for number in range(replay.added) if number % capacity == index][-1]
        t, env = divmod(newest, num_envs)
        rewards, discount, now = 0.0, 1.0, t
        while True:
            rewards += discount * (10 * now + env)
            discount *= 0.5
            ended = ends.get(now) if env == 0 else None
            if ended or now - t + 1 == n_step or now + 1 == steps:
                break
            now += 1
        expected = {"obs": t, "actions": 0, "rewards": rewards, "next_obs": now + 1}
        assert row(replay, index) == expected | {"dones": float(ended == "terminated"), "discounts": discount}


def test_n_step_targets_use_the_batch_own_discounts() -> None:
    batch = {"rewards": torch.tensor([1.0, 2.0])}
    batch |= {"dones": torch.tensor([0.0, 1.0]), "discounts": torch.tensor([0.25, 0.5])}
    assert td_target(batch, 0.9, torch.tensor([4.0, 4.0])).tolist() == [2.0, 2.0]
    assert td_target(batch, 0.9, torch.tensor([[4.0, 8.0], [4.0, 8.0]])).tolist() == [[2.0, 3.0], [2.0, 2.0]]
