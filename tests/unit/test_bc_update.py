"""Behaviour cloning against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from harness import check_seeds_together
from test_iql_update import HandModel, hand_batch
from test_sac_update import random_batch

from rl_training.algorithms import BC
from rl_training.models.mlp_iql import ClippedGaussianModel


def make_bc(seed: int = 0, **changes: Any) -> BC:
    torch.manual_seed(seed)
    return BC(model=ClippedGaussianModel(3, 1, (32, 32)), **changes)


def test_the_loss_by_hand() -> None:
    """The recorded action is 0.75 from the mean, in a spread of one: 0.5 * 0.5625 + log(2 pi) / 2."""
    metrics = BC(model=HandModel(), learning_rate=1e-9).update(hand_batch()).metrics
    assert metrics["actor_loss"] == pytest.approx(0.5 * 0.5625 + 0.5 * math.log(2 * math.pi))
    assert metrics["std"] == pytest.approx(1.0)


def test_actions_at_the_bounds_count_as_just_inside() -> None:
    """As IQL's authors do. 0.5 + 1e-5 from the mean, not 0.5: seen in float32, as its square."""
    batch = {**hand_batch(), "actions": torch.tensor([[1.0]])}
    loss = BC(model=HandModel(), learning_rate=1e-9).update(batch).metrics["actor_loss"]
    assert loss == pytest.approx(0.5 * (0.5 - 1e-5) ** 2 + 0.5 * math.log(2 * math.pi), abs=2e-7)
    assert loss < 0.5 * 0.25 + 0.5 * math.log(2 * math.pi) - 2e-6


def test_the_spread_told_is_the_one_in_use() -> None:
    model = ClippedGaussianModel(3, 1, (8,))
    model.actor.log_std.data.fill_(-9.0)  # the policy's is never below e^-5
    assert BC(model=model).update(random_batch()).metrics["std"] == pytest.approx(math.exp(-5))


def test_rewards_and_what_follows_do_not_matter() -> None:
    one, other = make_bc(), make_bc()
    for step in range(5):
        batch = random_batch(step)
        one.update(batch)
        other.update({**batch, "rewards": -3 * batch["rewards"], "dones": 1 - batch["dones"]})
    for name, tensor in one.engine.groups()["actor"].items():
        assert torch.equal(tensor, other.engine.groups()["actor"][name])


def test_cloning_finds_the_mean_and_the_spread_of_the_data() -> None:
    """Actions are 0.4 * obs + 0.1 * noise: that is what the policy learns."""
    torch.manual_seed(0)
    learner = BC(model=ClippedGaussianModel(1, 1, (32,)), learning_rate=1e-2)
    obs = torch.rand(512, 1) * 2 - 1
    noise = torch.randn(512, 1)
    batch = {"obs": obs, "actions": 0.4 * obs + 0.1 * noise, "rewards": obs, "next_obs": obs, "dones": obs * 0}
    for _ in range(400):
        metrics = learner.update(batch).metrics
    probe = torch.tensor([[-0.8], [0.0], [0.8]])
    torch.testing.assert_close(
        learner.model.sample_actions(probe, deterministic=True).actions, 0.4 * probe, atol=0.05, rtol=0
    )
    assert metrics["std"] == pytest.approx(0.1, abs=0.02)


def test_state_round_trips() -> None:
    learner, other = make_bc(), make_bc(seed=9)
    learner.update(random_batch())
    other.load_state_dict({name: tensor.clone() for name, tensor in learner.state_dict().items()})
    results = [one.update(random_batch(1)) for one in (learner, other)]
    assert results[0].metrics == results[1].metrics and learner.update_count == 2
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_exploring_draws_from_the_gaussian_within_the_bounds() -> None:
    learner = make_bc()
    noise = torch.tensor([[0.0], [0.1], [50.0], [-50.0]])
    nets, obs = learner.nets(), torch.zeros(4, 3)
    actions = learner.explore(nets, obs, noise, torch.ones(1)).action
    assert actions[0] == learner.greedy(nets, obs).action[0]
    assert actions[1].item() == pytest.approx(actions[0].item() + 0.1)  # the spread starts at one
    assert actions[2:].flatten().tolist() == [1.0, -1.0]


def test_seeds_together_are_each_alone() -> None:
    check_seeds_together(BC, hidden_sizes=(16, 16), batch_size=8, learning_rate=1e-2)
