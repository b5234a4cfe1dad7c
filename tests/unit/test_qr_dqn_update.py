"""What is true of QR-DQN alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rl_training.algorithms.qr_dqn import QRDQN
from rl_training.models import MLPQRQNetwork


class FixedQuantiles(nn.Module):
    """Two actions with two quantiles each, the same at every observation."""

    action_dim = 2

    def __init__(self, values: list[list[float]]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.values.expand(obs.shape[0], 2, 2)


def test_the_network_gives_quantiles_and_acts_on_their_mean() -> None:
    network = MLPQRQNetwork(obs_dim=3, action_dim=2, hidden_sizes=(8,), num_quantiles=5)
    obs = torch.randn(4, 3)
    quantiles = network(obs)
    assert quantiles.shape == (4, 2, 5)
    assert torch.equal(network.act(obs), quantiles.mean(-1).argmax(-1))
    network.forward = lambda obs: torch.tensor([[[0.0, 9.0], [4.0, 4.0]]]).expand(obs.shape[0], 2, 2)  # type: ignore
    assert network.act(obs).tolist() == [0, 0, 0, 0]  # mean 4.5 against 4, though its median is lower


def test_an_update_by_hand() -> None:
    # Action 0 has quantiles (0, 1), action 1 (2, 4), mean 3: the best next action. Reward 1, gamma .5:
    # target (1 + .5*2, 1 + .5*4) = (2, 3). Taken action 0: errors (2, 3 | 1, 2), Huber (1.5, 2.5 | .5, 1.5),
    # weights .25 | .75: (.25*(1.5 + 2.5) + .75*(.5 + 1.5)) / 2 = 1.25.
    learner = QRDQN(
        q_network=FixedQuantiles([[0.0, 1.0], [2.0, 4.0]]),
        learning_rate=1e-3,
        gamma=0.5,
        target_update_interval=100,
        num_quantiles=2,
    )
    batch = {"obs": torch.zeros(3, 1), "actions": torch.zeros(3, dtype=torch.long), "rewards": torch.ones(3)}
    result = learner.update({**batch, "next_obs": torch.zeros(3, 1), "dones": torch.zeros(3)}, global_step=1)
    assert result.num_gradient_steps == 1
    metrics = {"loss": 1.25, "q_value_mean": 0.5, "target_mean": 2.5, "td_error_mean": 2.0}
    assert dict(result.metrics) == pytest.approx(metrics)


def test_a_terminal_state_has_no_future() -> None:
    learner = QRDQN(q_network=FixedQuantiles([[0.0, 1.0], [2.0, 4.0]]), gamma=0.5, num_quantiles=2)
    batch = {"obs": torch.zeros(1, 1), "actions": torch.zeros(1, dtype=torch.long), "rewards": torch.ones(1)}
    result = learner.update({**batch, "next_obs": torch.zeros(1, 1), "dones": torch.ones(1)})
    assert result.metrics["target_mean"] == pytest.approx(1.0)


@pytest.mark.parametrize(("setting", "value"), [("num_quantiles", 0), ("kappa", 0.0), ("n_step", 0)])
def test_refused_settings(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{setting} must be"):
        QRDQN(q_network=FixedQuantiles([[0.0, 1.0], [2.0, 4.0]]), **{setting: value})
