"""Discrete SAC's losses and update against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import DiscreteSAC, discrete_sac_loss
from rl_training.algorithms.discrete_sac import DiscreteSACSettings
from rl_training.engine.gradients import phase_gradients
from rl_training.models import MLPDiscreteSACModel

LOG_3 = math.log(3.0)
# A policy that takes the second of two actions three times as often: probabilities 1/4 and 3/4.
ENTROPY = math.log(4) - 0.75 * LOG_3


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
@pytest.mark.parametrize("alpha", [0.5, torch.tensor(0.5)])
def test_discrete_sac_loss_by_hand(alpha: Any, shape: tuple[int, ...]) -> None:
    """Actions 1 and 0: critics (2, 4) and (1, 4) against targets (1, 4): (1 + 0) / 2 and 0.

    Least values (0, 1) and (4, 0): 3/4 and 1. Entropy term: -0.5 * entropy; actor: that minus their mean 7/8.
    """
    values = discrete_sac_loss(
        {
            "q1_values": torch.tensor([[0.0, 2.0], [4.0, 0.0]]),
            "q2_values": torch.tensor([[3.0, 1.0], [4.0, 5.0]]),
            "action_logprobs": torch.tensor([[-math.log(4), LOG_3 - math.log(4)]]).expand(2, 2),
            "actions": torch.tensor([1, 0]).view(shape),
            "target_q_values": torch.tensor([1.0, 4.0]).view(shape),
            "alpha": alpha,
        }
    )
    term = -0.5 * ENTROPY
    expected = {"critic_loss": 0.5, "actor_loss": term - 0.875, "target_q_mean": 2.5, "entropy_term": term}
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected)


class Table(nn.Module):
    """The same numbers for every observation."""

    def __init__(self, numbers: list[Any]) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.tensor(numbers))

    def forward(self, obs: Tensor) -> Tensor:
        return self.numbers.unsqueeze(-2).expand(*self.numbers.shape[:-1], len(obs), -1)


class HandModel(nn.Module):
    obs_dim, action_dim = 1, 2

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = Table([0.0, LOG_3]), Table([[2.0, 6.0], [4.0, 3.0]])


def hand_learner(**changes: Any) -> DiscreteSAC:
    settings = {"learning_rate": 1e-9, "gamma": 0.5, "alpha": 0.25, "tau": 0.0, **changes}
    learner = DiscreteSAC(model=HandModel(), **settings)
    learner.engine.groups()["target_critic"]["numbers"].copy_(torch.tensor([[[8.0, 12.0], [10.0, 4.0]]]))
    return learner


def hand_batch() -> dict[str, Tensor]:
    one = torch.ones(2, 1)
    return {
        "obs": one, "actions": torch.tensor([0, 1]), "rewards": torch.ones(2), "next_obs": one,
        "dones": torch.tensor([0.0, 1.0]),
    }  # fmt: skip


def test_losses_take_the_expectation_over_actions() -> None:
    """Target critics: least (8, 4), whose expectation is 5, plus 0.25 * entropy. The second row has ended.

    Predictions of the taken actions: (2, 6) and (4, 3). Actor: the least (2, 3), whose expectation is 2.75.
    """
    learner = hand_learner()
    nets = learner.nets()
    first = 1 + 0.5 * (5 + 0.25 * ENTROPY)
    with torch.no_grad():
        critic = learner.critic_loss(nets, hand_batch(), {}).metrics
        policy = learner.policy_loss(nets, hand_batch(), {}).metrics
    errors = ((2 - first) ** 2 + 5**2) / 2 + ((4 - first) ** 2 + 2**2) / 2
    assert critic["target_q_mean"].item() == pytest.approx((first + 1) / 2)
    assert critic["critic_loss"].item() == pytest.approx(errors)
    assert policy["actor_loss"].item() == pytest.approx(-0.25 * ENTROPY - 2.75)
    assert policy["entropy"].item() == pytest.approx(ENTROPY)


@pytest.mark.parametrize(("share", "rises"), [(0.98, True), (0.5, False)])
def test_the_temperature_rises_where_the_entropy_is_below_the_target(share: float, rises: bool) -> None:
    """The policy's entropy is 0.81 of the largest."""
    learner = hand_learner(alpha="auto", target_entropy_share=share, learning_rate=1e-3)
    assert learner.target_entropy == pytest.approx(share * math.log(2))
    learner.update(hand_batch())
    assert (learner.alpha > 1) == rises and learner.alpha == pytest.approx(1, abs=2e-3)


def test_the_actors_gradient_is_that_of_the_expectation() -> None:
    """d/dlogit_i of sum p (a log p - q) is p_i (g_i - sum p g), with g = a log p - q."""
    learner = hand_learner()
    logits = torch.tensor([0.0, LOG_3], dtype=torch.float64)
    log_probs = logits.log_softmax(-1)
    inner = 0.25 * log_probs - torch.tensor([2.0, 3.0], dtype=torch.float64)
    by_hand = log_probs.exp() * (inner - (log_probs.exp() * inner).sum())
    phase = learner.engine.phases[1]
    grads, _, _ = phase_gradients(phase, learner.binding, learner.engine.groups_by_seed()[0], hand_batch(), {})
    torch.testing.assert_close(grads["actor"]["numbers"].double(), by_hand, rtol=1e-5, atol=1e-6)


def test_a_target_entropy_that_is_given_is_used() -> None:
    assert hand_learner(alpha="auto", target_entropy=0.3).target_entropy == 0.3


def test_exploring_draws_from_the_policy_and_acting_greedily_does_not() -> None:
    learner = hand_learner()
    obs = torch.ones(1, 4000, 1)
    drawn = learner.act_explore(obs, step=0, progress=0.0).action.double().mean().item()
    assert drawn == pytest.approx(0.75, abs=5 * math.sqrt(0.75 * 0.25 / 4000))
    assert learner.act_greedy(obs).action.unique().tolist() == [1]


def test_the_model() -> None:
    torch.manual_seed(0)
    model, obs = MLPDiscreteSACModel(obs_dim=3, action_dim=4, hidden_sizes=(8,)), torch.randn(5, 3)
    first, second = model.q_values(obs)
    assert first.shape == second.shape == (5, 4)
    assert torch.equal(model.action_values(obs), torch.minimum(first, second))
    torch.testing.assert_close(model.log_probs(obs).exp().sum(-1), torch.ones(5))
    sampled = model.sample_actions(obs)
    of_sampled = model.log_probs(obs).gather(1, sampled.actions.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(sampled.logprobs, of_sampled)
    assert torch.equal(model.sample_actions(obs, deterministic=True).actions, model.log_probs(obs).argmax(-1))
    assert model.sample_actions(obs[0]).actions.shape == (1,)
    assert MLPDiscreteSACModel(3, 4, (), num_critics=3).q_values(obs).shape == (5, 3, 4)  # type: ignore[union-attr]


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_outside_0_and_1_is_rejected(share: float) -> None:
    with pytest.raises(ValueError, match=r"target_entropy_share must be in \[0, 1\]"):
        DiscreteSACSettings(target_entropy_share=share)
