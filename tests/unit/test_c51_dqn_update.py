"""What is true of C51 alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from rl_training.algorithms.c51_dqn import C51DQN
from rl_training.models import MLPC51QNetwork


class FixedLogits(nn.Module):
    """Two actions over three atoms, the same at every observation."""

    action_dim = 2

    def __init__(self, probabilities: list[list[float]]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(probabilities).log())

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(obs.shape[0], 2, 3)


def learner(**settings: float) -> C51DQN:
    network = FixedLogits([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    return C51DQN(q_network=network, **{"gamma": 0.5, "num_atoms": 3, "v_min": 0.0, "v_max": 2.0, **settings})


def batch(done: float) -> dict[str, torch.Tensor]:
    one = {"obs": torch.zeros(2, 1), "actions": torch.zeros(2, dtype=torch.long), "rewards": torch.full((2,), 0.5)}
    return {**one, "next_obs": torch.zeros(2, 1), "dones": torch.full((2,), done)}


def test_an_update_by_hand() -> None:
    # Atoms 0, 1, 2. Action 1 is worth 1.6 and is the best next one: mass (.1, .2, .7) at .5 + .5*z = (.5, 1, 1.5).
    # Projected: .05 to 0, .05 + .2 + .35 = .6 to 1, .35 to 2. Cross entropy with (.5, .3, .2) of the taken action 0.
    result = learner().update(batch(0.0))
    expected = -(0.05 * math.log(0.5) + 0.6 * math.log(0.3) + 0.35 * math.log(0.2))
    metrics = {"loss": expected, "q_value_mean": 0.7, "target_mean": 1.3, "td_error_mean": 0.6}
    assert dict(result.metrics) == pytest.approx(metrics, rel=1e-5)


def test_behind_a_terminal_state_all_mass_is_at_the_reward() -> None:
    result = learner().update(batch(1.0))
    assert result.metrics["target_mean"] == pytest.approx(0.5)
    assert result.metrics["loss"] == pytest.approx(-0.5 * math.log(0.5) - 0.5 * math.log(0.3))


def test_the_network_acts_on_the_expected_value() -> None:
    network = MLPC51QNetwork(obs_dim=2, action_dim=3, hidden_sizes=(), num_atoms=5, v_min=-1, v_max=3)
    obs = torch.randn(4, 2)
    expected = (network(obs).softmax(-1) * torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0])).sum(-1)
    torch.testing.assert_close(network.action_values(obs), expected)
    assert torch.equal(network.act(obs), expected.argmax(-1))


def test_dueling_advantages_are_zero_on_average() -> None:
    network = MLPC51QNetwork(obs_dim=2, action_dim=3, hidden_sizes=(8, 8), num_atoms=5, dueling=True)
    obs = torch.randn(4, 2)
    assert network.trunk is not None and network.value is not None
    value = network.value(torch.relu(network.trunk(obs)))
    torch.testing.assert_close(network(obs).mean(1), value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_atoms": 1}, "num_atoms must be >= 2 and <= 2000, got 1"),
        ({"v_min": 2.0, "v_max": 2.0}, r"v_min must be < v_max \(2.0\)"),
        ({"v_max": 1e39}, "v_max must be in"),
        ({"n_step": 1001}, "n_step must be <= 1000, got 1001"),
    ],
)
def test_refused_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learner(**settings)


def test_a_network_on_other_atoms_is_refused() -> None:
    network = MLPC51QNetwork(obs_dim=2, action_dim=3, num_atoms=5, v_min=-1.0, v_max=3.0)
    C51DQN(q_network=network, num_atoms=5, v_min=-1.0, v_max=3.0)
    for name, asked in {"num_atoms": 6, "v_min": 0.0, "v_max": 9.0}.items():
        settings = {"num_atoms": 5, "v_min": -1.0, "v_max": 3.0, name: asked}
        with pytest.raises(ValueError, match=rf"{name} must be .*, as in the network, got {asked}"):
            C51DQN(q_network=network, **settings)
    with pytest.raises(ValueError, match="q_network must be a network, got None"):
        C51DQN()


@pytest.mark.parametrize("atoms", [{"num_atoms": 1}, {"v_min": 3.0}])
def test_atoms_that_make_no_distribution_are_refused(atoms: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        MLPC51QNetwork(**{"obs_dim": 2, "action_dim": 3, "v_min": -1.0, "v_max": 3.0, **atoms})  # type: ignore[arg-type]
