"""IQL's losses and updates against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from harness import check_seeds_together
from test_sac_update import random_batch
from torch import Tensor, nn
from torch.distributions import Normal

from rl_training.algorithms import IQL, iql_loss
from rl_training.algorithms.iql import advantage_weights
from rl_training.algorithms.losses import expectile_error
from rl_training.models import MLPIQLModel
from rl_training.models.layers import StackedLinear
from rl_training.models.parts import gaussian_log_density

METRICS = {"critic_loss", "value_loss", "actor_loss", "target_q_mean", "advantage_weight_mean"}


def make_iql(seed: int = 0, **changes: Any) -> IQL:
    torch.manual_seed(seed)
    model = MLPIQLModel(obs_dim=3, action_dim=1, hidden_sizes=(32, 32))
    keywords = {"learning_rate": 3e-4, "gamma": 0.99, "tau": 0.005, "expectile": 0.7, "beta": 3.0}
    return IQL(model=model, **{**keywords, "max_advantage_weight": 100.0, **changes})


# --- losses ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_iql_loss_by_hand(shape: tuple[int, ...]) -> None:
    """Critics: errors 1, -1 give 1; errors 0, 2 give 2; together 3. Value: differences 2 and -1 against the expectile
    0.8 give (0.8 * 4 + 0.2 * 1) / 2 = 1.7. Actor: -(3 * -1 + 0.5 * 2) / 2 = 1."""
    given = {
        "q1_values": torch.tensor([2.0, 3.0]),
        "q2_values": torch.tensor([1.0, 6.0]),
        "target_q_values": torch.tensor([1.0, 4.0]),
        "value_predictions": torch.tensor([1.0, 5.0]),
        "target_state_values": torch.tensor([3.0, 4.0]),
        "behavior_logprobs": torch.tensor([-1.0, 2.0]),
        "advantage_weights": torch.tensor([3.0, 0.5]),
    }
    given = {name: value.view(shape) for name, value in given.items()}
    expected = {
        "critic_loss": 3,
        "value_loss": 1.7,
        "actor_loss": 1,
        "target_q_mean": 2.5,
        "advantage_weight_mean": 1.75,
    }
    found = {name: value.item() for name, value in iql_loss({**given, "expectile": 0.8}).items()}
    assert found == pytest.approx(expected)
    # without one, the expectile is 0.7: (0.7 * 4 + 0.3 * 1) / 2
    assert iql_loss(given)["value_loss"].item() == pytest.approx(1.55)


def test_the_expectile_of_a_sample_minimises_its_error() -> None:
    """Of 0 and 1, the 0.9-expectile is 0.9: 0.9 * (1 - v) = 0.1 * v."""
    sample, guesses = torch.tensor([0.0, 1.0]), torch.linspace(0, 1, 101)
    errors = torch.stack([expectile_error(sample - guess, 0.9).mean() for guess in guesses])
    assert guesses[errors.argmin()].item() == pytest.approx(0.9)


def test_advantages_are_multiplied_by_beta_and_capped() -> None:
    weights = advantage_weights(torch.tensor([0.0, 1.0, -1.0, 50.0, 1e30]), beta=3.0, max_weight=100.0)
    assert weights.tolist() == pytest.approx([1.0, math.exp(3), math.exp(-3), 100.0, 100.0])


def test_the_density_of_a_recorded_action() -> None:
    torch.manual_seed(0)
    mean, log_std, actions = torch.randn(50, 3), torch.randn(3), torch.randn(50, 3)
    theirs = Normal(mean, log_std.exp()).log_prob(actions).sum(-1)
    torch.testing.assert_close(gaussian_log_density(mean, log_std, actions), theirs)


# --- one update --------------------------------------------------------------------------------------------------
class Scaled(nn.Module):
    """w * obs, of the first number of each observation."""

    def __init__(self, w: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, obs: Tensor) -> Tensor:
        return self.w * obs[:, 0]


class Critics(nn.Module):
    """Q_i = w_i * action + obs."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, 3.0]))

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.w[:, None] * actions[:, 0] + obs[:, 0]


class Actor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_std = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor([0.0]))

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        return self.mean * torch.ones_like(obs[:, :1]), self.log_std


class HandModel(nn.Module):
    action_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic, self.state_value = Actor(), Critics(), Scaled(2.0)


def hand_learner(**settings: Any) -> IQL:
    keywords = {"learning_rate": 1e-9, "gamma": 0.5, "tau": 0.0, "expectile": 0.8, "beta": 2.0, **settings}
    learner = IQL(model=HandModel(), **keywords)
    learner.engine.groups()["target_critic"]["w"].copy_(torch.tensor([[-4.0, 10.0]]))
    return learner


def hand_batch(dones: float = 0.0) -> dict[str, Tensor]:
    return {
        "obs": torch.tensor([[1.0]]),
        "actions": torch.tensor([[-0.25]]),
        "rewards": torch.tensor([4.0]),
        "next_obs": torch.tensor([[3.0]]),
        "dones": torch.tensor([dones]),
    }


def test_each_loss_takes_the_right_networks() -> None:
    """At s = 1, a = -1/4 the target critics say 1 + 1 = 2 and -2.5 + 1 = -1.5: the smaller is -1.5. V(1) = 2.

    Value: -1.5 - 2 = -3.5 lies below: 0.2 * 12.25 = 2.45. Actor: the weight is exp(2 * -3.5); the recorded action is
    0.75 from the mean: log density -0.5 * 0.5625 - log(2 pi) / 2. Critics: the target is 4 + 0.5 * V(3) = 4 + 3 = 7;
    the online ones say 0.75 and 0.25: 6.25^2 + 6.75^2.
    """
    metrics = hand_learner().update(hand_batch()).metrics
    assert metrics["value_loss"] == pytest.approx(2.45)
    assert metrics["advantage_weight_mean"] == pytest.approx(math.exp(-7))
    logprob = -0.5 * 0.5625 - 0.5 * math.log(2 * math.pi)
    assert metrics["actor_loss"] == pytest.approx(-math.exp(-7) * logprob)
    assert metrics["target_q_mean"] == pytest.approx(7.0)
    assert metrics["critic_loss"] == pytest.approx(6.25**2 + 6.75**2)


def test_nothing_lies_behind_a_terminal_state() -> None:
    assert hand_learner().update(hand_batch(dones=1.0)).metrics["target_q_mean"] == pytest.approx(4.0)


def test_the_order_is_value_actor_critic_target() -> None:
    """With a learning rate of 0.1 Adam's first step is 0.1 each way. V falls from 2 to 1.9 (it lies above the target),
    so the advantage is -3.4 in the actor's weight, and the critics' target is 4 + 0.5 * 5.7. Then the critics rise:
    with a = -1/4 their weights fall by 0.1. The targets move half-way to them."""
    learner = hand_learner(learning_rate=0.1, tau=0.5)
    metrics = learner.update(hand_batch()).metrics
    assert metrics["value_loss"] == pytest.approx(2.45)  # of before
    assert metrics["advantage_weight_mean"] == pytest.approx(math.exp(-6.8), rel=1e-5)
    assert metrics["target_q_mean"] == pytest.approx(6.85)
    groups = learner.engine.groups()
    torch.testing.assert_close(groups["critic"]["w"][0], torch.tensor([0.9, 2.9]))
    torch.testing.assert_close(groups["target_critic"]["w"][0], torch.tensor([(-4 + 0.9) / 2, (10 + 2.9) / 2]))


def test_only_the_actors_rate_falls_along_a_cosine() -> None:
    learner = make_iql(learning_rate=1e-3)
    for progress, share in ((0.0, 1.0), (0.5, 0.5), (2 / 3, 0.25), (1.0, 0.0), (1.5, 0.0)):
        learner.set_progress(progress)
        rates = {"value": 1e-3, "actor": 1e-3 * share, "critic": 1e-3}
        assert learner.engine.rate_values == pytest.approx(rates, abs=1e-12)
    constant = make_iql(learning_rate=1e-3, actor_schedule="constant")
    constant.set_progress(1.0)
    assert constant.engine.rate_values == dict.fromkeys(("value", "actor", "critic"), 1e-3)


def test_groups_whose_rate_has_fallen_to_zero_are_named() -> None:
    learner = make_iql()
    assert learner.stopped_groups() == []
    learner.set_progress(1.0)
    assert learner.stopped_groups() == ["actor"]
    linear = make_iql(learning_rate_schedule="linear")
    linear.set_progress(1.0)
    assert linear.stopped_groups() == ["value", "actor", "critic"]


def test_the_policy_never_reaches_the_critics() -> None:
    """Two learners whose policies differ have the same values after ten updates."""
    one, other = make_iql(), make_iql()
    with torch.no_grad():
        for tensor in other.engine.groups()["actor"].values():
            tensor.add_(0.3)
    for step in range(10):
        for learner in (one, other):
            learner.update(random_batch(step), global_step=step)
    for group in ("value", "critic", "target_critic"):
        for name, tensor in one.engine.groups()[group].items():
            assert torch.equal(tensor, other.engine.groups()[group][name])


def test_update_returns_every_metric_at_once_and_state_round_trips() -> None:
    learner = make_iql()
    result = learner.update(random_batch(), global_step=0)
    assert result.num_gradient_steps == 1 and set(result.metrics) >= METRICS and learner.update_count == 1
    assert all(math.isfinite(value) for value in result.metrics.values())
    other = make_iql(seed=9)
    other.load_state_dict({name: tensor.clone() for name, tensor in learner.state_dict().items()})
    for one in (learner, other):
        one.update(random_batch(1))
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"expectile": 0.0}, r"expectile must be in \(0, 1\), got 0"),
        ({"expectile": 1.0}, r"expectile must be in \(0, 1\), got 1"),
        ({"beta": 0.0}, "beta must be > 0, got 0"),
        ({"max_advantage_weight": 0}, "max_advantage_weight must be > 0, got 0"),
        ({"dataset_kind": "file"}, "dataset_path must be given when dataset_kind is file"),
        ({"dataset_kind": "policy"}, "dataset_agent must be given when dataset_kind is policy"),
        (
            {"dataset_kind": "random", "dataset_path": "x.npz"},
            r"dataset_kind must be file when dataset_path is given \(`dataset_path: null` takes it back\)",
        ),
        ({"dataset_kind": "file", "dataset_agent": "a"}, "dataset_path must be given when dataset_kind is file"),
        ({"dataset_path": "x.npz", "dataset_agent": "a"}, "dataset_agent must be left out where dataset_path is given"),
        (
            {"dataset_kind": "ranom"},
            r"dataset_kind must be one of random, policy, file, got 'ranom'; did you mean random\?",
        ),
        ({"dataset_size": 1}, "dataset_size must be >= 2, got 1"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_iql(**setting)


# --- the model -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hidden_sizes", [(8, 8), [8], ()])
def test_the_model(hidden_sizes: Any) -> None:
    model = MLPIQLModel(obs_dim=3, action_dim=2, hidden_sizes=hidden_sizes)
    sampled = model.sample_actions(10 * torch.randn(64, 3))
    assert sampled.actions.shape == (64, 2) and sampled.logprobs.shape == (64,) and sampled.actions.abs().max() <= 1
    q1, q2 = model.q_values(torch.zeros(4, 3), torch.zeros(4, 2))
    assert q1.shape == q2.shape == model.value(torch.zeros(4, 3)).shape == (4,)
    assert model.value(torch.zeros(3)).shape == (1,) and model.sample_actions(torch.zeros(3)).actions.shape == (1, 2)
    assert model.sample_actions(torch.ones(5, 3), deterministic=True).actions.unique(dim=0).shape == (1, 2)


def test_the_spread_does_not_depend_on_the_state_and_starts_at_one() -> None:
    model = MLPIQLModel(3, 2)
    for obs in (torch.zeros(1, 3), 5 * torch.ones(1, 3)):
        assert model.actor(obs)[1].tolist() == [0.0, 0.0]
    with torch.no_grad():
        model.actor.log_std.copy_(torch.tensor([-9.0, 7.0]))
    assert model.actor(torch.zeros(1, 3))[1].tolist() == [-5.0, 2.0]


def test_layers_start_orthogonal() -> None:
    """Three layers of the actor, of two critics and of the value: the shorter side's vectors have length sqrt(2)."""
    layers = [layer for layer in MLPIQLModel(3, 2, (16, 8)).modules() if isinstance(layer, StackedLinear)]
    weights = [weight for layer in layers for weight in layer.weight]
    assert sorted(tuple(weight.shape) for weight in weights) == sorted(
        [(3, 16), (16, 8), (8, 2)] + 2 * [(5, 16), (16, 8), (8, 1)] + [(3, 16), (16, 8), (8, 1)]
    )
    for weight in weights:
        short = weight if weight.shape[0] <= weight.shape[1] else weight.T
        torch.testing.assert_close(short @ short.T, 2 * torch.eye(len(short)), atol=1e-5, rtol=1e-5)
    assert not any(layer.bias.any() for layer in layers)


def test_seeds_together_are_each_alone() -> None:
    check_seeds_together(IQL, hidden_sizes=(16, 16), batch_size=8, learning_rate=1e-2)
