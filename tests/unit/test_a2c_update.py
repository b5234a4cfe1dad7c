"""A2C's loss and update against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from seed_harness import filled_source, make_learner, take_updates
from test_ppo_update import ENTROPY

from rl_training.algorithms import A2C, a2c_loss
from rl_training.core.checks import UserError
from rl_training.core.specs import discrete
from rl_training.models import ActorCriticModel


def test_an_update_by_hand() -> None:
    """Action 1 has probability 0.75, the value is 2: -(1 * log 0.75 + 3 * log 0.75) / 2, and errors 1 and 2."""
    learner = A2C(model=ActorCriticModel(1, discrete(2), (), (), shared=False), entropy_weight=0.1)
    for group, bias in (("actor", [[[0.0, math.log(3)]]]), ("critic", [[[2.0]]])):
        name = f"{group}.net.layers.0."
        weight = learner.seed_parameters(0)[f"{name}weight"]
        values = {f"{name}weight": torch.zeros_like(weight), f"{name}bias": torch.tensor(bias)}
        learner.load_seed_parameters(0, values)
    batch = {
        "obs": torch.ones(2, 1),
        "actions": torch.tensor([1, 1]),
        "logprobs": torch.zeros(2),  # what the policy that acted thought does not matter
        "values": torch.zeros(2),
        "advantages": torch.tensor([1.0, 3.0]),
        "returns": torch.tensor([3.0, 0.0]),
    }
    found = learner.update(batch)
    expected = {"policy_loss": -2 * math.log(0.75), "value_loss": 2.5, "entropy": ENTROPY}
    expected["loss"] = expected["policy_loss"] + 0.5 * 2.5 - 0.1 * ENTROPY
    assert {name: found.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert found.num_gradient_steps == 1 == learner.update_count
    assert {"approx_kl", "clip_fraction"}.isdisjoint(found.metrics)


def test_the_loss_of_given_tensors() -> None:
    given = {"logprobs": [-1.0, -2.0], "advantages": [1.0, -3.0], "values": [1.0, 2.0], "returns": [2.0, 2.0],
             "entropy": [1.0, 3.0]}  # fmt: skip
    found = a2c_loss({name: torch.tensor(values) for name, values in given.items()})
    expected = {"policy_loss": (1 - 6) / 2, "value_loss": 0.5, "entropy": 2.0, "loss": -2.5 + 0.25}
    assert {name: float(value) for name, value in found.items()} == pytest.approx(expected)


def test_a_rollout_is_one_update_with_all_its_transitions() -> None:
    learner = make_learner("a2c")
    rollout = filled_source(learner)
    assert take_updates(learner, rollout, 1, 40) == 1
    alone = make_learner("a2c")
    columns = ("obs", "actions", "logprobs", "values", "advantages", "returns")
    alone.update({name: rollout.columns[name][0].flatten(0, 1) for name in columns})
    for name, tensor in alone.engine.flat.items():
        torch.testing.assert_close(tensor, learner.engine.flat[name], rtol=1e-5, atol=1e-6)


def test_there_are_no_epochs_and_minibatches() -> None:
    with pytest.raises((UserError, TypeError)):
        A2C.settings_type(epochs=3)
    assert A2C.settings_type().updates_in(100, 4) == 5
