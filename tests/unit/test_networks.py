"""`network:` and `optimizer:`: layers by hand, modes, buffers, dropout, modules of one's own and what is rejected."""

from __future__ import annotations

import math
from typing import Any

import own_networks as own
import pytest
import torch
from conftest import settings_of
from torch import Tensor, nn

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.config.fields import parse
from rl_training.config.network import ACTIVATIONS, PLAIN, HiddenLayers, LayerSettings, NetworkSettings
from rl_training.core.checks import ConfigError, UserError
from rl_training.core.specs import EnvSpec, continuous, discrete, image, vector
from rl_training.engine.gradients import dropout_name
from rl_training.models.layers import Activation, BatchNorm, Dropout, SpectralLinear, StackedLayerNorm, StackedLinear
from rl_training.models.own import own_module
from rl_training.models.parts import StackedMLP

SPECS = {"continuous": continuous(2), "discrete": discrete(3)}
ALL = {"layer_norm": True, "dropout": 0.2, "spectral_norm": True, "activation": "Tanh"}
OWN = {"actor": own.BatchNormNet, "critic": own.BatchNormNet, "features": own.Features}


def learner(
    algo: str, network: dict[str, Any], seeds: tuple[int, ...] = (5,), compiled: bool = False, **more: Any
) -> Any:
    cls = learner_class(algo)
    spec = EnvSpec(image(3, 84, 84) if "image" in cls.observations[:1] else vector(3), SPECS[cls.actions[0]])
    size = settings_of(algo, {"batch_size": 8})
    settings = parse(cls.settings_type, {**size, "hidden_sizes": [16, 16], "network": network, **more})
    made = cls.create(spec, settings, seeds, compiled=compiled)
    made.engine.backend = "aot_eager"
    return made


def batch(made: Any, rows: int = 8) -> dict[str, Tensor]:
    found = made.example_batch(rows)
    generator = torch.Generator().manual_seed(3)
    for name, tensor in found.items():
        if tensor.is_floating_point() and name != "dones":
            found[name] = torch.randn(tensor.shape, generator=generator).clamp(-0.9, 0.9)
    return {name: one.expand(len(made.seeds), *one.shape[1:]).contiguous() for name, one in found.items()}


def train(made: Any, updates: int = 4) -> Any:
    for _ in range(updates):
        with made.engine.denormals_flushed():
            made.engine.update(batch(made), made.engine.host_noise(made.update_noise(8)))
    return made


def state(made: Any, seed: int = 0) -> dict[str, Tensor]:
    found = {f"{k}": v[seed] for k, v in made.engine.state_dict().items() if k.startswith(("params", "buffers"))}
    return {name: tensor.clone() for name, tensor in found.items()}


# --- layers ------------------------------------------------------------------------------------------------------
BY_DEFAULT = ("Tanh", "SiLU", "Mish", "ELU")  # the others: `make test-all`


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BY_DEFAULT else pytest.mark.sweep) for name in ACTIVATIONS]
)
def test_activations_are_torchs_and_the_same_for_stacked_seeds(name: str) -> None:
    x = torch.linspace(-30, 30, 4001)
    torch.testing.assert_close(Activation(name)(x), getattr(nn, name)()(x), atol=2e-7, rtol=2e-6)
    assert not list(Activation(name).parameters())
    together, alone = (
        train(learner("sac", {"activation": name}, seeds, hidden_sizes=[37, 29]), 5) for seeds in ((4, 5, 6), (5,))
    )
    mine, other = state(alone), state(together, 1)
    assert [key for key in mine if not torch.equal(mine[key], other[key])] == []


def test_one_output_is_a_sum_in_a_compiled_program_alone() -> None:
    """Exported programs have the product, which the rules of their formats know and which has the agent's bits."""
    layer, x, products = StackedLinear(2, 5, 1), torch.randn(2, 7, 5), []

    def compile_nothing(graph: torch.fx.GraphModule, examples: list[Tensor]) -> Any:
        products.append("matmul" in graph.code)
        return graph.forward

    torch.testing.assert_close(torch.compile(layer, backend=compile_nothing)(x), layer(x))
    products.append("matmul" in torch.export.export(layer, (x,)).module().code)
    assert products == [False, True]


def test_layer_norm_is_torchs_for_each_member() -> None:
    ours, x = StackedLayerNorm(2, 5), torch.randn(2, 7, 5)
    ours.weight.data.copy_(torch.arange(10.0).view(2, 1, 5))
    ours.bias.data.fill_(0.5)
    for member in range(2):
        theirs = nn.LayerNorm(5)
        theirs.weight.data.copy_(ours.weight[member, 0])
        theirs.bias.data.fill_(0.5)
        torch.testing.assert_close(ours(x)[member], theirs(x[member]))


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 4, 3)])
def test_batch_norm_is_torchs(shape: tuple[int, ...]) -> None:
    theirs = (nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d)(5, momentum=0.3)
    nn.init.normal_(theirs.weight)
    ours = BatchNorm(type(theirs)(5, momentum=0.3))
    ours.load_state_dict(theirs.state_dict())
    for _ in range(3):
        x = torch.randn(shape)
        torch.testing.assert_close(ours(x), theirs(x))
    for name, buffer in theirs.named_buffers():
        torch.testing.assert_close(dict(ours.named_buffers())[name], buffer)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x))


def test_spectral_norm_divides_by_the_largest_singular_value() -> None:
    layer = SpectralLinear(2, 6, 4)
    nn.init.zeros_(layer.bias)
    x = torch.eye(6).unsqueeze(0)
    for _ in range(200):
        layer(x)
    for member in range(2):
        assert torch.linalg.matrix_norm(layer(x)[member], 2).item() == pytest.approx(1.0, rel=1e-4)
    before = layer.left.clone()
    layer.eval()(x)
    assert torch.equal(layer.left, before)


def test_dropout_by_hand() -> None:
    layer, x = Dropout(0.25), torch.full((4,), 3.0)
    layer.uniforms = torch.tensor([0.1, 0.25, 0.3, 0.9])
    assert layer(x).tolist() == [0.0, 4.0, 4.0, 4.0]
    assert layer.eval()(x).tolist() == [3.0] * 4


def test_the_order_within_a_layer_is_dense_dropout_norm_activation() -> None:
    layers = HiddenLayers((8,), LayerSettings(layer_norm=True, dropout=0.5, activation="Tanh"))
    net, x = StackedMLP(1, 3, layers, 2), torch.randn(5, 3)
    net.stages[0].dropout.uniforms = uniforms = torch.rand(1, 5, 8)
    hidden = net.layers[0](x.unsqueeze(0))
    expected = net.stages[0].norm(torch.where(uniforms < 0.5, 0.0, 2 * hidden)).tanh()
    torch.testing.assert_close(net(x), net.layers[1](expected))


def test_plain_sizes_are_layers_with_a_relu_alone() -> None:
    assert HiddenLayers.of((4, 5)).options is PLAIN
    assert [name for name, _ in StackedMLP(1, 3, (4,), 2).named_parameters()] == [
        "layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]  # fmt: skip


@pytest.mark.parametrize("weights", ["orthogonal", "xavier_uniform", "kaiming_uniform"])
def test_initial_weights(weights: str) -> None:
    critic = learner("sac", {"initial_weights": weights, "activation": "Tanh"}).model.critic.net
    first, gain = critic.layers[0].weight[1], 5 / 3  # tanh's
    if weights == "orthogonal":
        torch.testing.assert_close(first @ first.T, gain**2 * torch.eye(5), atol=1e-5, rtol=0)
    else:
        fan = {"xavier_uniform": 6 / (5 + 16), "kaiming_uniform": 3 / 5}[weights]
        assert 0.8 < first.abs().max() / (gain * math.sqrt(fan)) <= 1.0
    assert not critic.layers[0].bias.any()


# --- settings ----------------------------------------------------------------------------------------------------
def test_the_critics_have_layers_of_their_own() -> None:
    made = learner("sac", {"activation": "Tanh", "critic": {"hidden_sizes": [7], "layer_norm": True}})
    actor, critic = made.model.actor.net, made.model.critic.net
    assert [layer.weight.shape[-1] for layer in critic.layers] == [7, 1]
    assert [layer.weight.shape[-1] for layer in actor.layers] == [16, 16, 4]
    assert critic.stages[0].norm is not None and isinstance(critic.stages[0].activation.function, nn.Tanh)
    assert actor.stages[0].norm is None and isinstance(actor.stages[0].activation.function, nn.Tanh)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"network": {"activation": "Relu"}}, "network.activation must be one of ReLU, Tanh"),
        ({"network": {"activation": "Relu"}}, "got 'Relu'; did you mean ReLU?"),
        ({"network": {"dropuot": 0.1}}, "network: unknown key 'dropuot'; did you mean dropout?"),
        ({"network": {"critic": {"dropout": 1.0}}}, "network.critic.dropout must be in [0, 1)"),
        ({"network": 3}, "network must be a mapping, got 3"),
        ({"network": {"actor": {}}}, "network.actor must be left out: there is no actor"),
        ({"optimizer": "Adagrad"}, "optimizer.name must be one of Adam, AdamW, RMSprop, RAdam, SGD, got 'Adagrad'"),
        ({"optimizer": {"name": "SGD", "betas": [0.9, 0.99]}}, "betas must be left out for SGD, which takes momentum"),
        ({"optimizer": {"name": "RAdam", "betas": [0.9, 0.0]}}, "optimizer.betas must be > 0 in their second entry"),
        (
            {"learning_rate_schedule": own.halving, "learning_rate_warmup": 0.1},
            "learning_rate_warmup must be 0 where learning_rate_schedule is a function",
        ),
        ({"learning_rate_schedule": "cosin"}, "learning_rate_schedule must be one of constant, linear, cosine"),
    ],
)
def test_invalid_settings_are_named_by_their_path(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as rejected:
        parse(learner_class("dqn").settings_type, values)
    assert message in str(rejected.value) and "\n" not in str(rejected.value)


def test_a_short_form_names_the_kind() -> None:
    settings = parse(learner_class("dqn").settings_type, {"network": "mlp", "optimizer": "AdamW"})
    assert settings.network == NetworkSettings() and settings.optimizer.name == "AdamW"


@pytest.mark.parametrize(
    ("schedule", "more", "rates"),
    [
        ("constant", {}, [1.0, 1.0, 1.0]),
        ("linear", {}, [1.0, 0.5, 0.0]),
        ("linear", {"learning_rate_end": 0.2}, [1.0, 0.6, 0.2]),
        ("cosine", {"learning_rate_end": 0.2}, [1.0, 0.6, 0.2]),
        ("constant", {"learning_rate_warmup": 0.8}, [0.0, 0.625, 1.0]),
        (lambda progress: 3 - progress, {}, [3.0, 2.5, 2.0]),
    ],
)
def test_schedules_of_the_learning_rate(schedule: Any, more: dict[str, Any], rates: list[float]) -> None:
    values = {"learning_rate": 1.0, "learning_rate_schedule": schedule, **more}
    settings = parse(learner_class("dqn").settings_type, values)
    assert [settings.rate(progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx(rates)
    assert settings.rate(1.5) == pytest.approx(rates[-1])  # of an extended run


# --- training ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algo", ["sac", "td3", "dqn", "iql", "tqc"])
def test_a_seed_among_others_is_the_seed_alone_with_every_option(algo: str) -> None:
    together, alone = (train(learner(algo, ALL, seeds)) for seeds in ((4, 5), (5,)))
    mine, other = state(alone), state(together, 1)
    assert mine.keys() == other.keys()
    assert [name for name in mine if not torch.equal(mine[name], other[name])] == []


@pytest.mark.parametrize(
    "network", [pytest.param(ALL, id="options"), pytest.param(OWN, id="own")]
)
@pytest.mark.sweep
def test_compiled_updates_are_the_eager_ones(network: dict[str, Any]) -> None:
    eager, compiled = (train(learner("sac", network, (4, 5), compiled), 2) for compiled in (False, True))
    for name, one in state(eager, 1).items():
        torch.testing.assert_close(state(compiled, 1)[name], one, atol=1e-5, rtol=1e-4, msg=name)


def test_own_networks_of_several_seeds_are_each_alone_within_rounding() -> None:
    together, alone = (train(learner("sac", OWN, seeds), 2) for seeds in ((4, 5), (5,)))
    assert together.engine.stacked
    obs = torch.randn(1, 6, 3)
    mine, other = alone.act_greedy(obs).action[0], together.act_greedy(obs.expand(2, -1, -1)).action[1]
    torch.testing.assert_close(mine, other, atol=1e-5, rtol=0)


def test_networks_train_in_their_own_phase_and_infer_elsewhere() -> None:
    """The actor's statistics move by the actor's batch alone, the target's are copies of the critics'."""
    made = learner("sac", OWN)
    before = state(made)
    one = batch(made)
    noise = made.engine.host_noise(made.update_noise(8))
    made.engine.update(one, noise, due=("critic",))
    after = state(made)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    tracked = {name for name in moved if "num_batches_tracked" in name}
    assert tracked == {name for name in before if "num_batches" in name and not name.startswith("buffers.actor")}
    for name in tracked:
        assert after[name].tolist() == [1, 1]  # once for each member, though the target was evaluated too
    assert not any(name.startswith(("params.actor", "buffers.actor")) for name in moved)
    source = {name.replace("critic", "target_critic"): one for name, one in after.items() if "buffers.critic" in name}
    assert all(torch.equal(after[name], one) for name, one in source.items())


def test_acting_uses_running_statistics_and_no_dropout() -> None:
    made = train(learner("sac", OWN))
    obs = torch.randn(1, 6, 3)
    whole, parts = made.act_greedy(obs).action, [made.act_greedy(obs[:, i : i + 1]).action for i in range(6)]
    torch.testing.assert_close(whole, torch.cat(parts, 1))
    assert torch.equal(made.act_greedy(obs).action, whole)


def test_each_use_of_a_dropout_layer_has_its_own_numbers() -> None:
    made = learner("sac", {"dropout": 0.2})
    specs = {name: spec for name, spec in made.update_noise(8).items() if name.startswith("dropout")}
    shapes = {name: spec.shape for name, spec in specs.items()}
    # The critics' loss trains two critics with two layers, the policy's loss the actor: others infer.
    assert shapes == {
        dropout_name("critic", 0): (2, 8, 16),
        dropout_name("critic", 1): (2, 8, 16),
        dropout_name("policy", 0): (1, 8, 16),
        dropout_name("policy", 1): (1, 8, 16),
    }
    assert learner("sac", {}).update_noise(8).keys() == {"next_action", "action"}


def test_dropout_of_own_networks_has_numbers_for_every_member() -> None:
    made = learner("redq", {"critic": own.BatchNormNet}, num_critics=3)
    shapes = {n: s.shape for n, s in made.update_noise(8).items() if n.startswith("dropout")}
    assert shapes == {dropout_name("critic", 0): (3, 8, 24)}
    train(made, 1)


@pytest.mark.parametrize("algo", algorithm_names())
def test_every_algorithm_takes_layers_and_own_features(algo: str) -> None:
    cls = learner_class(algo)
    options = {"layer_norm": True, "dropout": 0.1, "activation": "ELU"}
    extra: dict[str, Any] = {}
    if "image" in cls.observations[:1]:
        extra = {"features_dim": 4}
        options["features"] = lambda spec: nn.Sequential(nn.Conv2d(3, 2, 16, 8), nn.Flatten())
    else:
        options["features"] = own.Features
    made = learner(algo, options, **extra)
    before = state(made)
    train(made, 1)
    assert any(".features." in name or ".module." in name for name in before)
    moved = [name for name in before if not torch.equal(before[name], state(made)[name])]
    assert any("norm" in name for name in moved) and any("module" in name for name in moved)


def test_a_module_that_cannot_be_stacked_runs_seed_by_seed() -> None:
    made = learner("sac", {"critic": own.Branching}, (4, 5))
    assert not made.engine.stacked
    mine, other = state(train(learner("sac", {"critic": own.Branching}))), state(train(made), 1)
    assert all(torch.equal(one, other[name]) for name, one in mine.items())


def test_frozen_parameters_stay_and_tied_ones_are_one() -> None:
    made = learner("sac", {"features": own.TiedAndFrozen}, (4, 5))
    before = state(made, 1)
    after = state(train(made), 1)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert not any("frozen" in name for name in moved)
    assert sorted(name for name in before if "critic.features" in name and "target" not in name) == [
        "buffers.critic.features.module.frozen.bias",
        "buffers.critic.features.module.frozen.weight",
        "params.critic.features.module.a.weight",
    ]
    assert "params.critic.features.module.a.weight" in moved
    name = "critic.features.module.frozen.weight"
    assert torch.equal(made.seed_parameters(1)[name], before[f"buffers.{name}"])


def test_a_module_with_modes_of_its_own_infers_when_it_acts() -> None:
    made = learner("td3", {"features": own.TiedAndFrozen})
    obs = torch.randn(1, 4, 3)
    expected = made.model.actor(obs[0])  # the model itself is in inference mode too
    assert torch.equal(made.act_greedy(obs).action[0], expected)
    assert made.model.actor.train()(obs[0]).sub(expected).abs().max() > 1e-3


@pytest.mark.parametrize("algo", ["dqn", "iqn"])
def test_choosing_the_next_action_is_no_training(algo: str) -> None:
    network = {"critic": own.BatchNormNet} if algo == "dqn" else {"features": lambda spec: own.BatchNormNet(3, 6)}
    made = learner(algo, network, double=True)
    train(made, 1)
    tracked = [one for name, one in state(made).items() if "num_batches" in name and "target" not in name]
    assert len(tracked) == 1 and tracked[0].max() == 1


def test_weights_decay_and_temperatures_do_not() -> None:
    made = learner("sac", {}, optimizer={"name": "AdamW", "weight_decay": 0.9}, learning_rate=1.0, initial_alpha=0.1)
    flat = {group: one.clone() for group, one in made.engine.flat.items()}
    grads = {group: {n: torch.zeros_like(t) for n, t in made.engine.groups_by_seed()[0][group].items()}
             for group in ("actor", "temperature")}  # fmt: skip
    made.engine._step(1, grads)
    assert torch.equal(made.engine.flat["temperature"], flat["temperature"])
    torch.testing.assert_close(made.engine.flat["actor"], 0.1 * flat["actor"])


def test_initial_weights_leave_own_modules_alone() -> None:
    def features(spec: Any) -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (3, 1, 1)), nn.Conv2d(3, 4, 1), nn.Flatten())

    found = [learner("sac", {"features": features, "initial_weights": w}) for w in ("default", "orthogonal")]
    convolutions = [one.model.actor.features.module[1].weight for one in found]
    assert torch.equal(*convolutions)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (lambda progress: None, "learning_rate_schedule: test_networks:<lambda>(0) raised TypeError"),
        (lambda: 1e-3, "learning_rate_schedule: test_networks:<lambda>(0) raised TypeError"),
        (lambda progress: -1.0, "learning_rate_schedule: test_networks:<lambda>(0) must be a rate >= 0, got -1.0"),
        (lambda progress: float("nan"), "must be a rate >= 0, got nan"),
    ],
)
def test_a_schedule_that_returns_no_rate(schedule: Any, message: str) -> None:
    with pytest.raises(UserError) as rejected:
        learner("sac", {}, learning_rate_schedule=schedule)
    assert message in str(rejected.value)


def test_an_agent_acts_without_its_schedule_and_does_not_learn() -> None:
    made = learner("sac", {}, learning_rate_schedule="somewhere:schedule")
    assert made.act_greedy(torch.zeros(1, 1, 3)).action.shape == (1, 1, 2)
    with pytest.raises(UserError, match="learning_rate_schedule is 'somewhere:schedule'"):
        made.update({name: tensor[0] for name, tensor in batch(made).items()})


# --- rejected ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (own.too_wide, "network.critic: own_networks:too_wide must return (batch, 1), got (2, 4) for a batch of 2"),
        (own.no_module, "network.critic: own_networks:no_module must return a torch.nn.Module, got str"),
        (own.raising, "network.critic: own_networks:raising(5, 1) raised ValueError: no such width"),
        (own.DroppingByFunction, "network.critic: its forward pass calls dropout, whose random numbers"),
        (nn.Linear(5, 1), "network.critic must be a class or function that makes a module, got an instance of Linear"),
        (own.Attention, "network.critic: Attention draws random numbers in its forward pass (a dropout= argument"),
        (own.OneDropout, "network.critic: drop is used 2 times in a forward pass; each use needs its own nn.Dropout"),
        (lambda i, o: nn.LazyLinear(o), "network.critic: parameter weight has no size yet; lazy modules are not"),
        (own.Assigning, "network.critic: buffer seen must be changed in place (copy_, add_), not assigned"),
        (lambda i, o: nn.Linear(i + 1, o), "network.critic: Linear raised RuntimeError for inputs of (2, 5): "),
        (lambda i, o: nn.Linear(i, o).double(), "network.critic: parameter weight must be float32"),
        (
            lambda i, o: nn.Sequential(nn.Linear(i, o), nn.AlphaDropout()),
            "AlphaDropout is not supported; nn.Dropout is",
        ),
        (
            lambda i, o: nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o, momentum=None)),
            "must have a momentum, got None",
        ),
        (
            "own_networks:BatchNormNet",
            "network.critic is 'own_networks:BatchNormNet', a class or function, which is never",
        ),
    ],
)
def test_networks_that_cannot_be_used_are_named(make: Any, message: str) -> None:
    with pytest.raises(UserError) as rejected:
        learner("sac", {"critic": make})
    assert message in str(rejected.value) and "\n" not in str(rejected.value)


def test_own_q_networks_exclude_dueling_and_noise() -> None:
    with pytest.raises(UserError, match=r"network\.critic must be left out where dueling or noisy is true"):
        learner("dqn", {"critic": own.BatchNormNet}, dueling=True)
    with pytest.raises(UserError, match=r"network\.spectral_norm must be false for noisy layers"):
        learner("dqn", {"spectral_norm": True}, noisy=True)


def test_torchs_layers_are_replaced_wherever_they_are() -> None:
    module = own_module(lambda: nn.Sequential(nn.Sequential(nn.BatchNorm2d(3)), nn.Dropout(0.3)), "network.features")
    assert isinstance(module[0][0], BatchNorm) and module[1].probability == 0.3
    assert isinstance(own_module(lambda: nn.Dropout(0.3), "network.features"), Dropout)
