"""`precision: bfloat16`: products in bfloat16, everything else in float32."""

from __future__ import annotations

import math
from typing import Any

import own_networks as own
import pytest
import torch
from test_networks import learner, state, train
from torch import nn

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.config.train_config import TrainConfig
from rl_training.models.layers import StackedLinear, set_precision_
from rl_training.run.validate import parse_settings

BELOW = 2.0**-10  # 1 + BELOW is 1 in bfloat16, which has 8 bits


def test_a_dense_layer_rounds_its_inputs_and_weights_but_not_its_bias() -> None:
    layer = StackedLinear(1, 2, 1)
    layer.weight.data[0] = torch.tensor([[1.0], [1 + BELOW]])
    layer.bias.data.fill_(BELOW)
    x = torch.tensor([[[1 + BELOW, 1.0]]])
    assert layer(x).item() == 2 + 3 * BELOW
    set_precision_(nn.Sequential(layer), "bfloat16")
    assert layer(x).item() == 2 + BELOW and layer(x).dtype == torch.float32
    layer(x).sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize(
    "algo",
    ["sac", *(pytest.param(name, marks=pytest.mark.sweep) for name in ("drq", "tqc", "redq", "cql", "drqv2"))],
)
def test_updates_are_near_those_of_float32_and_its_state_is_float32(algo: str) -> None:
    rough, exact = (train(learner(algo, {}, precision=one), 2) for one in ("bfloat16", "float32"))
    assert {one.dtype for one in state(rough).values()} == {torch.float32}
    differences = [(state(exact)[name] - one).abs().max().item() for name, one in state(rough).items()]
    assert 0 < max(differences) < 1e-2 and all(map(math.isfinite, differences))
    obs = rough.example_batch(4)["obs"].float() + 0.3
    if algo == "sac":
        exact.engine.load_state_dict(rough.engine.state_dict())
        found = (rough.act_greedy(obs).action - exact.act_greedy(obs).action).abs().max().item()
        assert 0 < found < 1e-2, "it acts as it learns"


@pytest.mark.parametrize("network", [{}, {"kind": "simba", "hidden_sizes": [8]}])
def test_seeds_together_are_each_alone(network: dict[str, Any]) -> None:
    settings = {"precision": "bfloat16", "learning_rate": 1e-2}
    together = train(learner("sac", network, (5, 0), **settings))
    for index, seed in enumerate((5, 0)):
        alone = state(train(learner("sac", network, (seed,), **settings)))
        assert all(torch.equal(state(together, index)[name], tensor) for name, tensor in alone.items())


@pytest.mark.sweep
def test_compiled_is_eager() -> None:
    settings = {"precision": "bfloat16", "seeds": (5, 0)}
    eager, compiled = (state(train(learner("sac", {}, compiled=one, **settings), 2)) for one in (False, True))
    for name, tensor in compiled.items():
        torch.testing.assert_close(tensor, eager[name], rtol=1e-3, atol=1e-4)


def test_modules_of_the_user_stay_in_float32() -> None:
    made = learner("sac", {"critic": own.BatchNormNet}, precision="bfloat16")
    layers = {name: one.dtype for name, one in made.model.named_modules() if isinstance(one, StackedLinear)}
    assert layers and set(layers.values()) == {torch.bfloat16} and all(name.startswith("actor") for name in layers)


def test_which_algorithms_take_it() -> None:
    types = {name: learner_class(name).settings_type for name in algorithm_names()}
    taking = {name for name, cls in types.items() if "precision" in cls.__dataclass_fields__}
    assert {"sac", "drq", "drqv2", "tqc", "redq", "droq", "discrete_sac"} <= taking
    assert all(cls().precision == "float32" for cls in types.values())
    with pytest.raises(ValueError, match="precision must be one of float32, bfloat16, got 'float16'"):
        parse_settings(TrainConfig("sac", "Pendulum-v1", algo_kwargs={"precision": "float16"}))
    with pytest.raises(ValueError, match="unknown key 'precision'; it is a setting of other algorithms, not of dqn"):
        parse_settings(TrainConfig("dqn", "CartPole-v1", algo_kwargs={"precision": "bfloat16"}))
