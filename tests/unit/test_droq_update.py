"""DroQ's losses and networks against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rl_training.algorithms import DroQ, droq_loss, redq_loss
from rl_training.algorithms.droq import DroQSettings
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.engine.gradients import loss_pass
from rl_training.models import MLPREDQModel

ONE = EnvSpec(vector(1), continuous(1))
KEEP_BOTH, DROP_SECOND, DROP_BOTH = [0.6, 0.6], [0.6, 0.4], [0.4, 0.4]  # of two hidden units, at a dropout of 0.5


def test_droq_loss_is_redqs() -> None:
    """Errors (1, -1) and (0, 2): 1 + 2. Entropy term 0.5 * mean(-1, 3) = 0.5, actor 0.5 - mean(4, 1) = -2."""
    values = {
        "critic_q_values": torch.tensor([[2.0, 1.0], [3.0, 6.0]]),
        "target_q_values": torch.tensor([1.0, 4.0]),
        "sampled_logprobs": torch.tensor([-1.0, 3.0]),
        "sampled_q_values": torch.tensor([4.0, 1.0]),
        "alpha": 0.5,
    }
    expected = {"critic_loss": 3.0, "actor_loss": -2.0, "target_q_mean": 2.5, "entropy_term": 0.5}
    assert {name: value.item() for name, value in droq_loss(values).items()} == pytest.approx(expected)
    assert droq_loss is redq_loss


def hand_learner(**changes: Any) -> DroQ:
    """Two equal critics on the observation 1: hidden (1, 3), normalised (-1, 1), so Q = 5 * 0 + 7 * 1 + 2 = 9.

    Without its second unit a row is (2, 0), normalised (1, -1): Q = 5 + 2 = 7. Without both, Q = 2.
    """
    settings = {"hidden_sizes": (2,), "gamma": 0.5, "alpha": 0.0, "network": {"critic": {"dropout": 0.5}}, **changes}
    learner = DroQ.create(ONE, DroQSettings(**settings), [0])
    assert isinstance(learner, DroQ)
    for group in ("critic", "target_critic"):
        params = {name: tensor[0] for name, tensor in learner.engine.groups()[group].items()}
        params["net.layers.0.weight"].copy_(torch.tensor([[1.0, 3.0], [0.0, 0.0]]))  # the action does not count
        params["net.layers.0.bias"].zero_()
        params["net.layers.1.weight"].copy_(torch.tensor([[5.0], [7.0]]))
        params["net.layers.1.bias"].fill_(2.0)
    return learner


def metrics_of(learner: DroQ, number: int, dropout: list[list[list[float]]]) -> dict[str, Any]:
    """The metrics of a phase, with the uniform numbers of its dropout layers: of each use, of each critic."""
    phase, one = learner.engine.phases[number], torch.ones(1, 1)
    noise: dict[str, Tensor] = {"subset": torch.tensor([0.1, 0.9]), "action": one, "next_action": one}
    noise |= {f"dropout/{phase.name}/{use}": torch.tensor(rows).unsqueeze(1) for use, rows in enumerate(dropout)}
    batch = {"obs": one, "actions": one, "rewards": torch.ones(1), "next_obs": one, "dones": torch.zeros(1)}
    nets = learner.binding.networks_of(learner.engine.groups_by_seed()[0], loss_pass(phase, noise))
    with torch.no_grad():
        return {name: float(value) for name, value in phase.loss(nets, batch, noise).metrics.items()}


def test_dropout_acts_in_the_target_and_in_the_critics_loss() -> None:
    """Target critics 9 and 7: target 1 + 0.5 * 7 = 4.5. Predictions 2 and 9: 2.5^2 + 4.5^2 = 26.5."""
    found = metrics_of(hand_learner(), 0, [[KEEP_BOTH, DROP_SECOND], [DROP_BOTH, KEEP_BOTH]])
    assert found["target_q_mean"] == pytest.approx(4.5, rel=1e-4)
    assert found["critic_loss"] == pytest.approx(26.5, rel=1e-4)


def test_dropout_acts_for_the_actor_which_maximises_the_mean() -> None:
    """Critics 2 and 9: the actor's loss is -5.5."""
    assert metrics_of(hand_learner(), 1, [[DROP_BOTH, KEEP_BOTH]])["actor_loss"] == pytest.approx(-5.5, rel=1e-4)


def test_without_dropout_it_draws_nothing_for_it() -> None:
    learner = hand_learner(network={"critic": {"dropout": 0.0}})
    assert set(learner.update_noise(4)) == {"subset", "action", "next_action"}
    found = metrics_of(learner, 0, [])
    assert found["target_q_mean"] == pytest.approx(1 + 0.5 * 9, rel=1e-4)


def test_the_dropout_of_an_update_is_drawn_three_times() -> None:
    """In the target and in the loss of the critics, and once for the actor; one layer for two critics."""
    drawn = {name: spec for name, spec in hand_learner().update_noise(4).items() if name.startswith("dropout/")}
    assert list(drawn) == ["dropout/critic/0", "dropout/critic/1", "dropout/policy/0"]
    assert {spec.shape for spec in drawn.values()} == {(2, 4, 2)}


def test_a_direct_update_trains_critics_and_actor() -> None:
    torch.manual_seed(0)
    learner = DroQ(model=MLPREDQModel(3, 1, (16,), num_critics=2), learning_rate=1e-3, alpha=0.2)
    rows = {"obs": torch.randn(8, 3), "actions": torch.rand(8, 1), "rewards": torch.randn(8), "dones": torch.zeros(8)}
    before = {name: flat.clone() for name, flat in learner.engine.flat.items()}
    result = learner.update({**rows, "next_obs": torch.randn(8, 3)}, global_step=1)
    assert (result.num_gradient_steps, learner.update_count) == (1, 1)
    assert all(math.isfinite(value) for value in result.metrics.values())
    moved = [name for name, flat in learner.engine.flat.items() if not torch.equal(flat, before[name])]
    assert moved == ["actor", "critic", "target_critic"]


@pytest.mark.parametrize(
    ("network", "dropout", "layer_norm"),
    [
        ({}, 0.01, True),
        ({"activation": "Tanh"}, 0.01, True),
        ({"critic": {"hidden_sizes": [8]}}, 0.01, True),
        ({"critic": {"dropout": 0.1, "layer_norm": False}}, 0.1, False),
        ({"critic": None}, 0.0, False),
    ],
)
def test_other_settings_of_the_network_leave_the_critics_dropout(
    network: dict[str, Any], dropout: float, layer_norm: bool
) -> None:
    settings = DroQSettings(network=network)
    options = settings.critic_layers.options
    assert (options.dropout, options.layer_norm) == (dropout, layer_norm)
    assert (settings.actor_layers.options.dropout, settings.actor_layers.options.layer_norm) == (0.0, False)


def test_evaluation_and_acting_are_without_dropout() -> None:
    learner = hand_learner()
    values = learner.model.q_values(torch.ones(1, 1), torch.ones(1, 1)).flatten()
    assert values.tolist() == pytest.approx([9, 9], rel=1e-4)
    obs = torch.ones(1, 5, 1)
    assert torch.equal(learner.act_greedy(obs).action, learner.act_greedy(obs).action)
