"""DQN's loss and update against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import DQN, dqn_loss
from rl_training.algorithms.dqn import DQNSettings
from rl_training.models import MLPQNetwork


class Table(nn.Module):
    """Q-values as plain parameters: the observation (i,) picks row i."""

    def __init__(self, rows: list[list[float]]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(rows))
        self.action_dim = len(rows[0])

    def forward(self, obs: Tensor) -> Tensor:
        rows = torch.nn.functional.one_hot(obs[..., 0].long(), self.values.shape[0]).float()
        return rows @ self.values


def transition(dones: float = 0.0, action: int = 0) -> dict[str, Tensor]:
    """From state 0 with reward 1 to state 1."""
    return {
        "obs": torch.tensor([[0.0]]),
        "actions": torch.tensor([action]),
        "rewards": torch.tensor([1.0]),
        "next_obs": torch.tensor([[1.0]]),
        "dones": torch.tensor([dones]),
    }


def table_learner(online: list[list[float]], target: list[list[float]], **settings: Any) -> DQN:
    """A learner whose online and target tables differ; the rate is too small to matter."""
    learner = DQN(q_network=Table(online), **{"learning_rate": 1e-9, "gamma": 0.5, **settings})
    learner.engine.groups()["target_q"]["values"].copy_(torch.tensor([target]))
    return learner


def test_dqn_loss_by_hand() -> None:
    """Chosen q: 1, 4, -2. Errors against 0.5, 1, -2: 0.5, 3, 0.

    Huber: 0.5 * 0.25 = 0.125; 3 - 0.5 = 2.5; 0. Mean 2.625 / 3 = 0.875. Mean |error| 3.5 / 3.
    """
    values = dqn_loss(
        {
            "q_values": torch.tensor([[1.0, 9.0], [9.0, 4.0], [-2.0, 9.0]]),
            "actions": torch.tensor([0, 1, 0]),
            "target_values": torch.tensor([0.5, 1.0, -2.0]),
        }
    )
    expected = {"loss": 0.875, "q_value_mean": 1.0, "target_mean": -0.5 / 3, "td_error_mean": 3.5 / 3}
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected)


@pytest.mark.parametrize(("double", "expected"), [(False, 1 + 0.5 * 8.0), (True, 1 + 0.5 * 2.0)])
def test_double_takes_the_online_choice_and_the_target_value(double: bool, expected: float) -> None:
    """At the next state online prefers action 0 (5 > 3), the target network action 1 (8 > 2)."""
    learner = table_learner([[0.0, 0.0], [5.0, 3.0]], [[0.0, 0.0], [2.0, 8.0]], double=double)
    assert learner.update(transition()).metrics["target_mean"] == pytest.approx(expected)


@pytest.mark.parametrize(("dones", "expected"), [(0.0, 1 + 0.5 * 8.0), (1.0, 1.0)])
def test_nothing_lies_behind_a_terminal_state(dones: float, expected: float) -> None:
    learner = table_learner([[0.0, 0.0], [5.0, 3.0]], [[0.0, 0.0], [2.0, 8.0]])
    assert learner.update(transition(dones)).metrics["target_mean"] == pytest.approx(expected)


def test_the_gradient_reaches_the_chosen_action_of_the_online_network_only() -> None:
    """Adam's first step moves what has a gradient by the learning rate: here Q(0, 1), upwards to the target 5."""
    learner = table_learner([[0.0, 0.0], [5.0, 3.0]], [[0.0, 0.0], [2.0, 8.0]], learning_rate=0.25)
    result = learner.update(transition(action=1), global_step=1)
    assert result.num_gradient_steps == 1
    # Error -5, Huber 4.5; gradient -1, below the limit of the norm.
    assert result.metrics["loss"] == pytest.approx(4.5)
    assert learner.model.values.tolist() == [[0.0, pytest.approx(0.25)], [5.0, 3.0]]
    assert learner.nets().groups["target_q"]["values"].tolist() == [[0.0, 0.0], [2.0, 8.0]]
    assert learner.engine.slots["adam_mean"]["q"][1].item() == pytest.approx(-0.1)


def test_the_gradient_is_clipped_at_max_grad_norm() -> None:
    """Two rows of error -5 on two entries: gradients -0.5 each, norm 0.707; clipped to 0.1: -0.0707 each."""
    learner = table_learner([[0.0, 0.0], [5.0, 3.0]], [[0.0, 0.0], [2.0, 8.0]], max_grad_norm=0.1)
    batch = {name: torch.cat([transition()[name], transition(action=1)[name]]) for name in transition()}
    learner.update(batch)
    assert learner.engine.slots["adam_mean"]["q"][:2].tolist() == pytest.approx([-0.1 * 0.1 / 2**0.5] * 2, rel=1e-4)


def test_columns_of_rewards_and_dones_do_not_broadcast() -> None:
    losses = []
    for shape in ((8,), (8, 1)):
        torch.manual_seed(0)
        batch = random_batch()
        batch.update({name: batch[name].reshape(shape) for name in ("actions", "rewards", "dones")})
        losses.append(DQN(q_network=MLPQNetwork(3, 2), learning_rate=1e-3).update(batch).metrics["loss"])
    assert losses[0] == losses[1]


def test_every_metric_is_there_from_the_first_update_on() -> None:
    learner = DQN(q_network=MLPQNetwork(3, 2), learning_rate=1e-3, gamma=0.99, target_update_interval=5, double=True)
    metrics = learner.update(random_batch(), global_step=1).metrics
    assert set(metrics) == {"loss", "q_value_mean", "target_mean", "td_error_mean"}
    assert all(np.isfinite(value) for value in metrics.values())


# --- networks ----------------------------------------------------------------------------------------------------
def random_batch(seed: int = 0, size: int = 8) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "obs": torch.randn(size, 3, generator=generator),
        "actions": torch.randint(2, (size,), generator=generator),
        "rewards": torch.randn(size, generator=generator),
        "next_obs": torch.randn(size, 3, generator=generator),
        "dones": (torch.rand(size, generator=generator) < 0.3).float(),
    }


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "no hidden layer": MLPQNetwork(3, 2, hidden_sizes=()),
        "torch layers": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)),
        "no bias": nn.Sequential(nn.Linear(3, 8, bias=False), nn.LayerNorm(8, bias=False), nn.Linear(8, 2)),
    }


@pytest.mark.parametrize("name", networks())
def test_any_network_learns_a_fixed_target(name: str) -> None:
    """Every transition ends with reward 3: Q of the actions taken must become 3."""
    network = networks()[name]
    batch = {**random_batch(), "rewards": torch.full((8,), 3.0), "dones": torch.ones(8)}
    batch["obs"] = batch["obs"] * 0 + torch.tensor([1.0, 0.0, -1.0])
    learner = DQN(q_network=network, learning_rate=0.05, gamma=0.9, target_update_interval=1, double=False)
    for step in range(200):
        learner.update(batch, global_step=step)
    torch.testing.assert_close(network(batch["obs"][:1]), torch.full((1, 2), 3.0), atol=0.05, rtol=0)


def test_one_observation_is_a_batch_of_one() -> None:
    network = MLPQNetwork(3, 2)
    obs = torch.randn(4, 3)
    assert network(obs[2]).shape == (1, 2)
    torch.testing.assert_close(network(obs[2])[0], network(obs)[2])
    assert network.act(obs[2]).tolist() == [network(obs)[2].argmax().item()]


def test_epsilon_one_acts_uniformly_and_epsilon_zero_greedily() -> None:
    learner = table_learner([[0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0]], epsilon_start=1.0, epsilon_end=0.0)
    obs = torch.zeros(1, 3000, 1)
    counts = learner.act_explore(obs, step=0, progress=0.0).action[0].bincount(minlength=3)
    assert counts.min() > 900  # 1000 each, standard deviation 26
    assert (learner.act_explore(obs, step=0, progress=1.0).action == 1).all()
    halfway = learner.act_explore(obs, step=0, progress=0.5 * learner.settings.exploration_fraction).action
    assert 1850 < (halfway == 1).sum() < 2150  # half greedy, a third of the rest by chance: 2000


# --- state and settings ------------------------------------------------------------------------------------------
def test_a_fresh_learner_resumes_from_the_state_with_the_same_bits() -> None:
    def make(seed: int) -> DQN:
        torch.manual_seed(seed)
        return DQN(q_network=MLPQNetwork(3, 2, (16,)), learning_rate=0.01, gamma=0.9, target_update_interval=4)

    first, second = make(0), make(1)
    for step in range(6):
        first.update(random_batch(step), global_step=step)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    assert second.update_count == 6
    for step in range(6, 12):  # past another copy of the target
        for learner in (first, second):
            learner.update(random_batch(step), global_step=step)
    states = first.state_dict(), second.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.01}, "gamma must be in [0, 1]"),
        ({"learning_rate": 0.0}, "learning_rate must be > 0"),
        ({"learning_rate": float("nan")}, "learning_rate must be > 0"),
        ({"batch_size": 65, "buffer_capacity": 64}, "batch_size must be <= buffer_capacity (64)"),
        ({"target_update_interval": 0}, "target_update_interval must be >= 1"),
        ({"epsilon_end": -0.1}, "epsilon_end must be in [0, 1]"),
        ({"hidden_sizes": (64, 0)}, "hidden_sizes must be sizes >= 1"),
    ],
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        DQNSettings(**settings)
    assert str(refused.value).startswith(message)


def test_columns_are_rows_in_the_loss_and_the_update() -> None:
    rng = torch.Generator().manual_seed(0)
    rows = {"target_values": torch.randn(8, generator=rng), "weights": torch.rand(8, generator=rng)}
    given = {"q_values": torch.randn(8, 3, generator=rng), "actions": torch.randint(3, (8,), generator=rng)}
    columns = {name: value.unsqueeze(1) for name, value in rows.items()}
    assert dqn_loss({**given, **columns}) == dqn_loss({**given, **rows})
    batch = {
        "obs": torch.randn(8, 2), "next_obs": torch.randn(8, 2), "actions": given["actions"],
        "rewards": torch.randn(8), "dones": torch.zeros(8), "weights": rows["weights"], "discounts": torch.rand(8),
    }  # fmt: skip
    losses = []
    for shape in ((8,), (8, 1)):
        torch.manual_seed(0)
        learner = DQN(q_network=MLPQNetwork(2, 3, (4,)))
        reshaped = {name: batch[name].view(shape) for name in ("rewards", "dones", "weights", "discounts")}
        losses.append(learner.update({**batch, **reshaped}).metrics["loss"])
    assert losses[0] == losses[1]


def test_a_batch_of_different_lengths_is_refused() -> None:
    batch = {"obs": torch.zeros(4, 2), "next_obs": torch.zeros(3, 2), "actions": torch.zeros(4, dtype=torch.long)}
    with pytest.raises(ValueError, match=r"all batch tensors must be of the same length, got .*'next_obs': 3"):
        DQN(q_network=MLPQNetwork(2, 3, (4,))).update({**batch, "rewards": torch.zeros(4), "dones": torch.zeros(4)})
