"""What is true of IQN alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms.iqn import IQN
from rl_training.algorithms.losses import quantile_huber
from rl_training.models import MLPIQNQNetwork, MLPQNetwork


class Uniform(nn.Module):
    """Two actions whose returns are spread evenly from 0 to `width`: the quantile at a level is level * width."""

    action_dim = 2

    def __init__(self, widths: list[float], policy_levels: int = 2) -> None:
        super().__init__()
        self.widths, self.policy_levels = nn.Parameter(torch.tensor(widths)), policy_levels

    def forward(self, obs: Tensor, noise: Tensor | None = None, levels: Tensor | None = None) -> Tensor:
        if levels is None:
            levels = ((torch.arange(self.policy_levels) + 0.5) / self.policy_levels).expand(len(obs), -1)
        return self.widths.view(1, -1, 1) * levels.unsqueeze(1)


def numpy_loss(quantiles: np.ndarray, levels: np.ndarray, target: np.ndarray, kappa: float) -> list[float]:
    """The paper's eq. 3, one pair at a time: sum over the drawn levels, mean over the target's."""
    rows = []
    for row in range(len(quantiles)):
        total = 0.0
        for i, level in enumerate(levels[row]):
            for sample in target[row]:
                error = sample - quantiles[row, i]
                huber = 0.5 * error**2 if abs(error) <= kappa else kappa * (abs(error) - 0.5 * kappa)
                total += abs(level - (error < 0)) * huber / kappa / target.shape[1]
        rows.append(total)
    return rows


@pytest.mark.parametrize("kappa", [1.0, 0.3])
def test_the_loss_is_that_of_an_obvious_reference(kappa: float) -> None:
    rng = np.random.default_rng(0)
    quantiles, levels, target = rng.normal(size=(5, 4)), rng.random((5, 4)), rng.normal(size=(5, 3))
    found = quantile_huber(*(torch.tensor(one) for one in (quantiles, target)), kappa, torch.tensor(levels))
    assert found.tolist() == pytest.approx(numpy_loss(quantiles, levels, target, kappa))


@pytest.mark.parametrize("double", [False, True])
def test_an_update_regresses_the_drawn_levels(double: bool) -> None:
    # Action 1 is worth 3 on average, action 0 one half: 1 is the best next action. Taken is 0, the reward 1, gamma .5.
    learner = IQN(
        q_network=Uniform([1.0, 6.0]), gamma=0.5, num_quantiles=3, num_target_quantiles=2, double=double,
        target_update_interval=100,
    )  # fmt: skip
    noise = learner.engine.host_noise(learner.noise(4))
    levels, target_levels = (noise[name][0].numpy() for name in ("levels", "target_levels"))
    assert levels.shape == (4, 3) and target_levels.shape == (4, 2)
    target = 1 + 0.5 * 6 * target_levels
    batch = {"obs": torch.zeros(4, 1), "actions": torch.zeros(4, dtype=torch.long), "rewards": torch.ones(4)}
    result = learner.update({**batch, "next_obs": torch.zeros(4, 1), "dones": torch.zeros(4)}, global_step=1)
    expected = {
        "loss": np.mean(numpy_loss(levels, levels, target, 1.0)),
        "q_value_mean": levels.mean(),
        "target_mean": target.mean(),
        "td_error_mean": np.abs(levels.mean(1) - target.mean(1)).mean(),
    }
    assert dict(result.metrics) == pytest.approx(expected, rel=1e-5)


class Shaken(nn.Module):
    """Two actions, worth what the noise is and its opposite."""

    action_dim, noise_size = 2, 1

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, obs: Tensor, noise: Tensor | None = None, levels: Tensor | None = None) -> Tensor:
        value = self.scale * (0 if noise is None else noise)
        count = 2 if levels is None else levels.shape[1]
        return torch.stack([value, -value]).view(1, 2, 1).expand(len(obs), 2, count)


@pytest.mark.parametrize("double", [False, True])
def test_one_draw_of_the_targets_noise_chooses_and_values_unless_double(double: bool) -> None:
    signs = set()
    for seed in range(8):
        learner = IQN(q_network=Shaken(), noisy=True, double=double, gamma=1.0, seeds=(seed,))
        noise = learner.engine.host_noise(learner.noise(1))
        following, chooser = (float(noise[name]) for name in ("next_obs", "chooser"))
        batch = {"obs": torch.zeros(1, 1), "actions": torch.zeros(1, dtype=torch.long), "rewards": torch.zeros(1)}
        result = learner.update({**batch, "next_obs": torch.zeros(1, 1), "dones": torch.zeros(1)})
        expected = math.copysign(1, chooser) * following if double else abs(following)
        assert result.metrics["target_mean"] == pytest.approx(expected)
        signs.add(following * chooser > 0)
    assert signs == {True, False}  # else the two could not be told apart


def test_a_terminal_state_has_no_future() -> None:
    learner = IQN(q_network=Uniform([1.0, 6.0]), gamma=0.5)
    batch = {"obs": torch.zeros(1, 1), "actions": torch.zeros(1, dtype=torch.long), "rewards": torch.ones(1)}
    result = learner.update({**batch, "next_obs": torch.zeros(1, 1), "dones": torch.ones(1)})
    assert result.metrics["target_mean"] == pytest.approx(1.0)


def test_every_update_draws_other_levels() -> None:
    learner = IQN(q_network=Uniform([1.0, 6.0]), num_quantiles=3)
    first = learner.engine.host_noise(learner.noise(4))["levels"]
    learner.engine.update_count += 1
    second = learner.engine.host_noise(learner.noise(4))["levels"]
    assert not torch.equal(first, second) and ((first >= 0) & (first < 1)).all()


def test_the_network_by_hand() -> None:
    network = MLPIQNQNetwork(obs_dim=1, action_dim=2, hidden_sizes=(1,), num_policy_quantiles=2, num_cosines=2)
    with torch.no_grad():
        for layers, weight, bias in ((network.reader, [[2.0]], [0.0]), (network.levels, [[1.0], [1.0]], [0.0]),
                                     (network.net, [[1.0, -1.0]], [0.0, 5.0])):  # fmt: skip
            layers.layers[0].weight.copy_(torch.tensor([weight]))
            layers.layers[0].bias.copy_(torch.tensor([[bias]]))
    # Features of observation 3: 6. Of level t: cos(0) + cos(pi t). Their product p gives the actions p and 5 - p.
    levels = torch.tensor([[0.0, 0.5, 1 / 3]])
    products = [6 * (1 + math.cos(math.pi * level)) for level in levels[0].tolist()]
    found = network(torch.tensor([[3.0]]), levels=levels)
    assert found[0, 0].tolist() == pytest.approx(products, abs=1e-5)
    assert found[0, 1].tolist() == pytest.approx([5 - product for product in products], abs=1e-5)
    # Without levels: 1/4 and 3/4, whose cosines cancel; the mean over them is 6 against -1.
    assert network.action_values(torch.tensor([[3.0]]))[0].tolist() == pytest.approx([6.0, -1.0], abs=1e-5)
    assert network.act(torch.tensor([[3.0]])).tolist() == [0]


@pytest.mark.parametrize("dueling", [False, True])
def test_noise_of_a_row_is_that_of_all_its_levels(dueling: bool) -> None:
    network = MLPIQNQNetwork(3, 2, (8, 8), num_policy_quantiles=4, dueling=dueling, noisy=True)
    obs, noise = torch.randn(5, 3), torch.randn(5, network.noise_size)
    together = network(obs, noise)
    alone = torch.cat([network(obs[row : row + 1], noise[row]) for row in range(5)])
    assert torch.allclose(together, alone, atol=1e-6)
    assert not torch.allclose(together, network(obs), atol=1e-3)


@pytest.mark.parametrize(
    "setting", ["num_quantiles", "num_target_quantiles", "num_policy_quantiles", "num_cosines", "kappa"]
)
def test_refused_settings(setting: str) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be"):
        IQN(q_network=Uniform([1.0, 6.0]), **{setting: 0})


def test_a_vector_needs_a_hidden_layer_for_the_levels_to_multiply() -> None:
    with pytest.raises(ValueError, match="hidden_sizes must be of at least one layer"):
        MLPIQNQNetwork(3, 2, ())


def test_a_network_without_levels_is_refused() -> None:
    with pytest.raises(ValueError, match="q_network must be a network that takes levels"):
        IQN(q_network=MLPQNetwork(3, 2, (8,)))
