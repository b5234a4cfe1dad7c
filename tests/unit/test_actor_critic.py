"""The actor-critic model: its parts by observation and action, initial weights, sequences, stacked seeds."""

from __future__ import annotations

import math
from typing import Any

import own_networks as own
import pytest
import torch
from stacking import assert_same_for_stacked_seeds, compiled, stacked_parameters
from torch import Tensor, nn
from torch.func import functional_call

from rl_training.config.network import HiddenLayers, LayerSettings, NetworkSettings
from rl_training.core.checks import UserError
from rl_training.core.specs import VECTOR, ArraySpec, continuous, discrete, image, mixed, multi_discrete, vector
from rl_training.engine.networks import Network, must_loop
from rl_training.models import ActorCriticModel, MLPQNetwork
from rl_training.models.cnn.encoders import NatureCNN
from rl_training.models.features import MixedEncoder, Observed, network_input
from rl_training.models.layers import StackedLinear, initialize_

IMAGE = (1, 36, 36)
TANH = HiddenLayers((16, 8), LayerSettings(activation="Tanh"))


def model(obs_dim: Any = 5, action: ArraySpec | None = None, layers: Any = TANH, **options: Any) -> ActorCriticModel:
    return ActorCriticModel(obs_dim, action or discrete(3), layers, layers, **{"shared": False, **options})


def full_pass(made: ActorCriticModel, obs: Any, rows: int, length: int = 1) -> tuple[Tensor, Tensor]:
    """The actor's and the critic's outputs for rows * length observations, in the order of rows."""
    hidden = obs if made.body is None else made.body(obs)
    if made.memory is not None:
        starts = torch.zeros(rows, length, dtype=torch.bool)
        hidden = made.memory(hidden.unflatten(0, (rows, length)), made.memory.initial_state(rows), starts)[0].flatten(
            0, 1
        )
    return made.actor(hidden), made.critic(hidden)


OBSERVATIONS = {
    "vector": (5, torch.randn(6, 5)),
    "image": (IMAGE, torch.randint(256, (6, *IMAGE), dtype=torch.uint8)),
    "own features": (Observed(vector(5), own.Features), torch.randn(6, 5)),
}
PARTS = {  # shared, recurrent: the groups for vectors and for other observations
    (False, None): ({"actor", "critic"}, {"actor", "critic"}),
    (True, None): ({"body", "actor", "critic"}, {"body", "actor", "critic"}),
    (False, "lstm"): ({"memory", "actor", "critic"}, {"body", "memory", "actor", "critic"}),
    (True, "gru"): ({"body", "memory", "actor", "critic"}, {"body", "memory", "actor", "critic"}),
}


@pytest.mark.parametrize("action", [discrete(3), multi_discrete((2, 4)), continuous(2)], ids=lambda one: one.kind)
@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize(("shared", "recurrent"), PARTS)
def test_parts_and_a_pass_over_sequences(
    shared: bool, recurrent: str | None, observation: str, action: ArraySpec
) -> None:
    obs_dim, obs = OBSERVATIONS[observation]
    made = model(obs_dim, action, shared=shared, recurrent=recurrent, recurrent_size=7)
    groups = made.groups()
    assert set(groups) == PARTS[shared, recurrent][observation != "vector"]
    named = {f"{group}.{name}" for group, part in groups.items() for name, _ in part.named_parameters()}
    assert named == {name for name, _ in made.named_parameters()}
    params, values = full_pass(made, obs, rows=2, length=3)
    assert params.shape == (6, made.distribution.outputs) and values.shape == (6,)
    assert made.obs_dim == obs_dim and made.action_dim == action.size and made.action == action
    actions = made.distribution.mode(params)
    (made.distribution.log_prob(params, actions) + made.distribution.entropy(params) + values).sum().backward()
    unused = [name for name, one in made.named_parameters() if one.grad is None]
    assert unused == []


def dense(module: nn.Module) -> list[StackedLinear]:
    return [layer for layer in module.modules() if isinstance(layer, StackedLinear)]


def assert_orthogonal(weight: Tensor, gain: float) -> None:
    short = weight if weight.shape[0] <= weight.shape[1] else weight.T
    torch.testing.assert_close(short @ short.T, gain**2 * torch.eye(len(short)), atol=1e-5, rtol=0)


def test_separate_networks_have_orthogonal_weights_with_small_outputs_of_the_actor() -> None:
    made = ActorCriticModel(IMAGE, continuous(2), (16,), (8, 4), shared=False)
    assert [tuple(one.weight.shape[1:]) for one in dense(made.actor)] == [(64, 16), (16, 2)]
    assert [tuple(one.weight.shape[1:]) for one in dense(made.critic)] == [(64, 8), (8, 4), (4, 1)]
    for part, gain in ((made.actor, 0.01), (made.critic, 1.0)):
        *hidden, output = dense(part)
        for layer in hidden:
            assert_orthogonal(layer.weight[0], math.sqrt(2))
        assert_orthogonal(output.weight[0], gain)
        for layer in part.modules():
            if isinstance(layer, nn.Conv2d):
                assert_orthogonal(layer.weight.flatten(1), math.sqrt(2))
            if isinstance(layer, (nn.Conv2d, StackedLinear)):
                assert layer.bias is not None and not layer.bias.any()
    assert must_loop(made) and not must_loop(model())


def test_a_shared_body_ends_with_an_activation_and_has_the_options_of_the_layers() -> None:
    layers = HiddenLayers((16, 8), LayerSettings(activation="Tanh", layer_norm=True, dropout=0.5))
    made, x = model(layers=layers, shared=True).eval(), torch.randn(4, 5)
    assert made.body is not None
    hidden = x
    for layer, stage in zip(made.body.layers, made.body.stages, strict=True):
        assert_orthogonal(layer.weight[0], math.sqrt(2))
        hidden = nn.functional.layer_norm(layer(hidden.unsqueeze(0)).squeeze(0), (stage.norm.size,)).tanh()
    torch.testing.assert_close(made.body(x), hidden)
    assert len(Network(made.body).dropouts) == 2
    for part, gain in ((made.actor, 0.01), (made.critic, 1.0)):
        (output,) = dense(part)
        assert_orthogonal(output.weight[0], gain)
        assert output.weight.shape[1] == 8
    assert model(layers=(), shared=True).body is None
    assert [tuple(one.weight.shape[1:]) for one in dense(model(layers=(), shared=True))] == [(5, 3), (5, 1)]


def test_log_std_is_one_parameter_or_predicted() -> None:
    x = torch.randn(4, 5)
    for predicted in (False, True):
        made = model(action=continuous(2), predicted_log_std=predicted, initial_log_std=-0.5)
        log_std = made.actor(x)[:, 2:]
        assert ("log_std" in dict(made.actor.named_parameters())) is not predicted
        torch.testing.assert_close(log_std, torch.full((4, 2), -0.5), atol=0.1 if predicted else 0, rtol=0)
        assert (log_std[0] != log_std[1]).any() == predicted
    output = dense(made.actor)[-1]
    output.bias.data = torch.tensor([[[50.0, -50.0, 50.0, -50.0]]])
    torch.testing.assert_close(made.actor(x), torch.tensor([50.0, -50.0, 2.0, -20.0]).expand(4, -1), atol=0.1, rtol=0)
    initialize_(made, "xavier_uniform", "Tanh")  # `network.initial_weights`
    nn.init.zeros_(output.weight)
    assert (made.actor(x)[:, 2:] == -0.5).all()


class OwnConvolution(nn.Module):
    """Features of an image by a convolution without a bias, whose weights are all 0.25."""

    def __init__(self, observation: ArraySpec) -> None:
        super().__init__()
        self.eye = nn.Conv2d(observation.shape[0], 4, 8, stride=4, bias=False)
        nn.init.constant_(self.eye.weight, 0.25)

    def forward(self, obs: Tensor) -> Tensor:
        return self.eye(obs).relu().flatten(1)


def test_modules_of_the_user_keep_their_weights() -> None:
    for options in ({"shared": True}, {"shared": False}, {"shared": False, "recurrent": "gru"}):
        made = model(Observed(image(*IMAGE), OwnConvolution), **options)
        eyes = [one.eye for one in made.modules() if isinstance(one, OwnConvolution)]
        assert eyes and all((one.weight == 0.25).all() for one in eyes)
    with_own = HiddenLayers((), LayerSettings(), own.BatchNormNet, "network.actor")
    actor = ActorCriticModel(5, discrete(3), with_own, (8,), shared=False).eval()
    assert full_pass(actor, torch.randn(4, 5), 4)[0].shape == (4, 3)
    with pytest.raises(UserError, match=r"network\.actor must be left out where actor and critic share their layers"):
        ActorCriticModel(5, discrete(3), with_own, (8,), shared=True)


@pytest.mark.parametrize(
    ("action", "options"),
    [
        (discrete(2), {}),
        (discrete(1), {"shared": True, "recurrent": "lstm", "recurrent_size": 9}),
        (multi_discrete((2, 5)), {"recurrent": "gru", "recurrent_size": 5}),
        (continuous(1), {"shared": True}),
        (continuous(3), {"recurrent": "lstm", "recurrent_size": 4, "predicted_log_std": True}),
        (continuous(17), {"layers": HiddenLayers((33, 21), LayerSettings(activation="ELU", layer_norm=True))}),
    ],
)
@pytest.mark.parametrize(("rows", "length"), [(1, 1), (3, 4)])
def test_stacked_seeds_have_the_bits_of_each_alone(
    action: ArraySpec, options: dict[str, Any], rows: int, length: int
) -> None:
    torch.manual_seed(1)
    models = [model(5, action, **options) for _ in range(3)]
    made, obs = models[0], torch.randn(3, rows * length, 5)
    kind, shape = made.distribution.noise(rows * length)
    noise = (torch.rand if kind == "uniform" else torch.randn)(3, *shape)

    class Pass(nn.Module):
        """Everything that collecting and a loss compute."""

        def __init__(self, inner: ActorCriticModel) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
            params, values = full_pass(self.inner, obs, rows, length)
            distribution = self.inner.distribution
            actions = distribution.sample(params, noise).detach()
            return params, values, actions, distribution.log_prob(params, actions), distribution.entropy(params)

    modules = [Pass(one) for one in models]
    assert_same_for_stacked_seeds(
        lambda params, *inputs: functional_call(modules[0], params, inputs), stacked_parameters(modules), obs, noise
    )


@pytest.mark.sweep
def test_compiled_without_graph_breaks() -> None:
    made, obs = model(5, continuous(2), shared=True, recurrent="lstm", recurrent_size=4), torch.randn(6, 5)

    def everything(obs: Tensor) -> tuple[Tensor, Tensor]:
        params, values = full_pass(made, obs, 2, 3)
        return made.distribution.log_prob(params, params[:, :2] + 1), values

    torch.testing.assert_close(compiled(everything, obs), everything(obs))


# --- layer normalisation of convolutions -------------------------------------------------------------------------
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_layer_norm_of_convolutions_by_hand(precision: str) -> None:
    made, obs = NatureCNN((4, 84, 84), layer_norm=True, precision=precision), torch.randint(256, (2, 4, 84, 84))
    assert made.norms is not None
    assert [tuple(one.weight.shape) for one in made.norms] == [(32, 20, 20), (64, 9, 9), (64, 7, 7)]
    hidden = obs.float() / 255
    for layer, norm in zip(made.layers, made.norms, strict=True):
        nn.init.normal_(norm.bias, std=0.3)
        hidden = nn.functional.layer_norm(layer(hidden), norm.weight.shape, norm.weight, norm.bias).relu()
    found = made(obs)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, hidden.flatten(1), atol=1e-4 if precision == "float32" else 0.1, rtol=0)
    assert not any("norms" in name for name, _ in NatureCNN((4, 84, 84)).named_parameters())


def test_q_networks_take_convolutions_with_layer_norm() -> None:
    """As CleanRL's pqn_atari_envpool.py."""
    spec, layers = image(4, 84, 84), HiddenLayers((512,), LayerSettings(layer_norm=True))
    made = MLPQNetwork(network_input(spec, NetworkSettings(), layer_norm=True), 6, layers)
    assert isinstance(made.image, NatureCNN) and made.image.norms is not None
    assert made(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6)
    assert network_input(spec, NetworkSettings()) == (4, 84, 84)
    assert network_input(vector(3), NetworkSettings(), layer_norm=True) == 3
    both = mixed({VECTOR: vector(3), "images.a": image(1, 36, 36)})
    encoder = MLPQNetwork(network_input(both, NetworkSettings(), layer_norm=True), 6, layers).image
    assert isinstance(encoder, MixedEncoder) and encoder.encoders[0].norms is not None
