"""TQC's losses and update against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import TQC, tqc_loss
from rl_training.algorithms.losses import ensemble_quantile_huber
from rl_training.algorithms.tqc import TQCSettings, truncated
from rl_training.models import MLPTQCModel

METRICS = {"critic_loss", "actor_loss", "target_q_mean", "entropy_term"}


# --- losses --------------------------------------------------------------------------------------------------------
def test_the_largest_of_the_pooled_quantiles_are_dropped() -> None:
    """Two critics of three quantiles, one dropped per critic: the two largest of all six, both of the first critic."""
    quantiles = torch.tensor([[[5.0, 9.0, 7.0], [0.0, 1.0, 2.0]], [[1.0, 4.0, 2.0], [0.5, 0.5, -3.0]]])
    assert truncated(quantiles, 1).sort(-1).values.tolist() == [[1.0, 2.0, 4.0, 5.0], [-3.0, 0.0, 0.5, 0.5]]
    assert truncated(quantiles, 0).sort(-1).values.tolist() == [[1, 2, 4, 5, 7, 9], [-3, 0, 0.5, 0.5, 1, 2]]


@pytest.mark.parametrize("alpha", [0.5, torch.tensor(0.5)])
def test_tqc_loss_by_hand(alpha: Any) -> None:
    """One row, critics (0, 2) and (1, 1), samples 0 and 4; midpoints 1/4 and 3/4; Huber h(d) = |d| - 1/2 beyond 1.

    First critic: 0: h(0) = 0 and 1/4 * h(4) = 0.875; 2: below, 1/4 * h(-2) = 0.375 and 3/4 * h(2) = 1.125.
    Second: 1 at 1/4: 3/4 * h(-1) = 0.375 and 1/4 * h(3) = 0.625; at 3/4: 1/4 * 0.5 = 0.125 and 3/4 * 2.5 = 1.875.
    The mean of the eight: 5.375 / 8. Entropy term 0.5 * 3 = 1.5, actor 1.5 - 7 = -5.5.
    """
    values = tqc_loss(
        {
            "critic_quantiles": torch.tensor([[[0.0, 2.0], [1.0, 1.0]]]),
            "target_quantiles": torch.tensor([[0.0, 4.0]]),
            "sampled_logprobs": torch.tensor([3.0]),
            "sampled_q_values": torch.tensor([7.0]),
            "alpha": alpha,
        }
    )
    expected = {"critic_loss": 5.375 / 8, "actor_loss": -5.5, "target_q_mean": 2.0, "entropy_term": 1.5}
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected)


def test_the_critic_term_is_the_slow_obvious_one() -> None:
    torch.manual_seed(0)
    quantiles, target, kappa = 3 * torch.randn(3, 4, 5), 3 * torch.randn(4, 7), 0.7
    total = 0.0
    for member in range(3):
        for row in range(4):
            for index in range(5):
                for sample in target[row]:
                    error = (sample - quantiles[member, row, index]).item()
                    size = abs(error)
                    huber = 0.5 * size**2 if size <= kappa else kappa * (size - 0.5 * kappa)
                    total += abs((index + 0.5) / 5 - (error < 0)) * huber / kappa
    assert ensemble_quantile_huber(quantiles, target, kappa).item() == pytest.approx(total / (3 * 4 * 5 * 7), rel=1e-5)


# --- one update ----------------------------------------------------------------------------------------------------
class FixedPolicy(nn.Module):
    """The action tanh(m), with log-density 2, whatever the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.tensor(math.atanh(0.5)))

    def forward(self, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.m.tanh().expand(len(obs), 1), torch.full((len(obs),), 2.0)


class LinearQuantiles(nn.Module):
    """Two critics of two quantiles: w * action."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[2.0, 4.0], [6.0, 8.0]]))

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.w.unsqueeze(1) * actions


class HandModel(nn.Module):
    action_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = FixedPolicy(), LinearQuantiles()


def test_an_update_by_hand() -> None:
    """Target critics at action 0.5: (100, 200) and (40, 80); the two largest dropped leave 40 and 80.

    Less the entropy 0.25 * 2 and with gamma 0.5: 1 + 0.5 * 39.5 = 20.75 and 40.75, mean 30.75.
    The actor climbs the mean of all four online quantiles: (1 + 2 + 3 + 4) / 4 = 2.5; its loss 0.5 - 2.5 = -2.
    Predictions at action 1 are 2, 4, 6, 8, all below the samples: weights 1/4, 3/4, h(d) = d - 1/2, mean sample 30.75.
    """
    settings = {"num_critics": 2, "num_quantiles": 2, "top_quantiles_to_drop_per_net": 1}
    learner = TQC(model=HandModel(), learning_rate=1e-9, gamma=0.5, alpha=0.25, tau=0.0, **settings)
    learner.engine.groups()["target_critic"]["w"].copy_(torch.tensor([[[200.0, 400.0], [80.0, 160.0]]]))
    one = torch.ones(3, 1)
    batch = {"obs": one, "actions": one, "rewards": torch.ones(3), "next_obs": one, "dones": torch.zeros(3)}
    metrics = learner.update(batch).metrics
    critic_loss = ((30.25 - 2) / 4 + (30.25 - 4) * 3 / 4 + (30.25 - 6) / 4 + (30.25 - 8) * 3 / 4) / 4
    expected = {"target_q_mean": 30.75, "actor_loss": -2.0, "entropy_term": 0.5, "critic_loss": critic_loss}
    assert {name: metrics[name] for name in METRICS} == pytest.approx(expected)
    metrics = learner.update({**batch, "dones": torch.ones(3)}).metrics
    assert metrics["target_q_mean"] == pytest.approx(1.0), "nothing is behind a terminal state"


def test_update_stand_alone() -> None:
    torch.manual_seed(0)
    model = MLPTQCModel(obs_dim=3, action_dim=2, hidden_sizes=(16,))
    learner = TQC(model=model, learning_rate=1e-3, gamma=0.99, alpha="auto", tau=0.005)
    generator = torch.Generator().manual_seed(0)
    batch = {
        "obs": torch.randn(8, 3, generator=generator),
        "actions": torch.rand(8, 2, generator=generator) * 2 - 1,
        "rewards": torch.randn(8, generator=generator),
        "next_obs": torch.randn(8, 3, generator=generator),
        "dones": torch.ones(8),
    }
    result = learner.update(batch, global_step=8)
    assert (result.num_gradient_steps, learner.update_count) == (1, 1)
    assert set(result.metrics) >= METRICS and all(math.isfinite(value) for value in result.metrics.values())
    first = result.metrics["critic_loss"]
    for step in range(200):
        result = learner.update(batch, global_step=step)
    assert result.metrics["critic_loss"] < 0.5 * first


# --- model and settings ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hidden_sizes", [(), (8,), [8, 8]])
def test_one_observation_is_a_batch_of_one(hidden_sizes: Any) -> None:
    torch.manual_seed(0)
    model = MLPTQCModel(obs_dim=3, action_dim=2, hidden_sizes=hidden_sizes, num_critics=4, num_quantiles=6)
    obs, actions = torch.randn(5, 3), torch.rand(5, 2) * 2 - 1
    quantiles, values = model.quantiles(obs, actions), model.q_values(obs, actions)
    assert (quantiles.shape, values.shape) == ((5, 4, 6), (5, 4))
    torch.testing.assert_close(quantiles.mean(-1), values)
    torch.testing.assert_close(model.q_values(obs[1], actions[1]), values[1:2])
    sampled = model.sample_actions(obs)
    assert sampled.actions.abs().max() <= 1 and sampled.logprobs.shape == (5,)
    assert model.sample_actions(obs[1]).actions.shape == (1, 2)


def test_critics_may_be_wider_than_the_actor() -> None:
    model = MLPTQCModel(obs_dim=3, action_dim=2, hidden_sizes=(8,), critic_hidden_sizes=(32, 16))
    assert [tuple(layer.weight.shape) for layer in model.critic.net.layers] == [(5, 5, 32), (5, 32, 16), (5, 16, 25)]
    assert model.actor.net.layers[0].weight.shape == (1, 3, 8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"top_quantiles_to_drop_per_net": -1}, "top_quantiles_to_drop_per_net must be >= 0"),
        ({"top_quantiles_to_drop_per_net": 25}, "top_quantiles_to_drop_per_net must be < num_quantiles (25), got 25"),
        ({"num_quantiles": 0}, "num_quantiles must be >= 1"),
        ({"num_critics": 0}, "num_critics must be >= 1"),
        ({"kappa": 0}, "kappa must be > 0"),
        ({"critic_hidden_sizes": [0]}, "critic_hidden_sizes must be sizes >= 1"),
    ],
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        TQCSettings(**settings)
    assert str(refused.value).startswith(message)
    with pytest.raises(ValueError, match="must be"):
        TQC(model=HandModel(), **settings)


def test_more_dropped_than_the_model_has_is_refused() -> None:
    model = MLPTQCModel(obs_dim=3, action_dim=1, hidden_sizes=(), num_quantiles=4)
    with pytest.raises(ValueError, match=r"top_quantiles_to_drop_per_net must be < num_quantiles \(4\), got 4"):
        TQC(model=model, top_quantiles_to_drop_per_net=4)
