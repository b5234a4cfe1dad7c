"""PQN's loss, targets and network against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from seed_harness import filled_source, make_learner
from torch import nn

from rl_training.algorithms import PQN, pqn_loss
from rl_training.algorithms.returns import lambda_returns
from rl_training.core.specs import EnvSpec, discrete, image, vector
from rl_training.engine.rollouts import Minibatches


def test_the_loss_by_hand() -> None:
    """Chosen values 1, 4 and -2 against returns 0.5, 1 and -2: errors 0.5, 3 and 0."""
    found = pqn_loss(
        {
            "q_values": torch.tensor([[1.0, 9.0], [9.0, 4.0], [-2.0, 9.0]]),
            "actions": torch.tensor([0, 1, 0]),
            "returns": torch.tensor([0.5, 1.0, -2.0]),
        }
    )
    expected = {"loss": 9.25 / 3, "q_mean": 1.0, "return_mean": -0.5 / 3}
    assert {name: float(value) for name, value in found.items()} == pytest.approx(expected)


def test_an_update_moves_the_chosen_value_towards_the_return() -> None:
    settings = PQN.settings_type(hidden_sizes=(), learning_rate=0.25, optimizer={"name": "Adam"}, max_grad_norm=None)
    learner = PQN.create(EnvSpec(vector(1), discrete(2)), settings, [0])
    obs = torch.ones(1, 1)
    before = learner.model.action_values(obs).detach().clone()
    learner.update({"obs": obs, "actions": torch.tensor([1]), "returns": before[:, 1] + 5})
    change = (learner.model.action_values(obs) - before).flatten().tolist()
    assert change == pytest.approx([0.0, 0.5], abs=1e-4)  # Adam's first step: the rate, of weight and bias


def test_targets_mix_the_best_values_of_true_successors() -> None:
    learner = make_learner("pqn", wanted={"gamma": 0.9, "q_lambda": 0.6})
    rollout = filled_source(learner)
    Minibatches(learner.training, rollout, 40, learner.targets).compute_targets()
    columns = {name: tensor[0] for name, tensor in rollout.columns.items()}
    best = learner.nets().q(columns["next_obs"].flatten(0, 1)).amax(-1).view(4, 10)
    expected = lambda_returns(columns, best, 0.9, 0.6)
    torch.testing.assert_close(columns["returns"], expected)
    assert set(rollout.layout.batch_names) == {"obs", "actions", "returns"}


def test_every_hidden_layer_and_convolution_is_normalised_unless_it_is_switched_off() -> None:
    spec = EnvSpec(image(1, 36, 36), discrete(2))
    made = PQN.build_model(spec, PQN.settings_type())
    assert sum(isinstance(module, nn.LayerNorm) for module in made.modules()) == 3
    plain = PQN.build_model(spec, PQN.settings_type(network={"layer_norm": False}))
    assert not any(isinstance(module, nn.LayerNorm) for module in plain.modules())
    assert learner_norms(True) == 2 and learner_norms(False) == 0


def learner_norms(layer_norm: bool) -> int:
    """The normalised hidden layers of a network on vectors."""
    made = PQN.build_model(EnvSpec(vector(3), discrete(2)), PQN.settings_type(network={"layer_norm": layer_norm}))
    return sum(type(module).__name__.endswith("Norm") for module in made.modules())


@pytest.mark.parametrize(("progress", "epsilon"), [(0.0, 1.0), (0.25, 0.525), (0.5, 0.05), (1.0, 0.05)])
def test_epsilon_falls_over_the_first_half(progress: float, epsilon: float) -> None:
    learner = make_learner("pqn")
    assert learner.exploration(progress) == pytest.approx(epsilon)
