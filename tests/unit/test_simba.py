"""`network: {kind: simba}`: its layers by hand, its sizes and initial weights, seeds, compilation, what is rejected."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from test_networks import learner, state, train
from torch import Tensor

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.algorithms.sac import SACSettings
from rl_training.config.network import HiddenLayers, LayerSettings
from rl_training.config.train_config import TrainConfig
from rl_training.models.parts import network
from rl_training.models.simba import Simba, SimbaBlock
from rl_training.run.resume import resume_training
from rl_training.run.run import train as train_run
from rl_training.run.validate import parse_settings

SMALL = {"kind": "simba", "actor": {"hidden_sizes": [4]}, "critic": {"hidden_sizes": [8, 8]}}
ALGORITHMS = ("sac", "td3", "tqc", "discrete_sac")


def layers(*sizes: int) -> HiddenLayers:
    return HiddenLayers(sizes, LayerSettings(kind="simba"))


def fill(layer: Any, weight: list[list[float]], bias: list[float] | float) -> None:
    layer.weight.data[0] = torch.tensor(weight)
    layer.bias.data[0] = torch.as_tensor(bias)


def test_a_block_by_hand() -> None:
    """(1, 5) is normalised to (-1, 1). Of the eight inner units one is -1 + 2 * 1 = 1 and one -1, which ReLU drops.

    Back: 1 * (10, 20) + (0.5, 0.5), added to (1, 5): (11.5, 25.5).
    """
    block = SimbaBlock(1, 2, "ReLU")
    fill(block.up, [[1.0, 1.0, *[0.0] * 6], [2.0, 0.0, *[0.0] * 6]], 0.0)
    fill(block.down, [[10.0, 20.0], [7.0, 7.0], *[[3.0, 3.0]] * 6], 0.5)
    torch.testing.assert_close(block(torch.tensor([[[1.0, 5.0]]])), torch.tensor([[[11.5, 25.5]]]), rtol=1e-4, atol=0)


def test_a_network_by_hand() -> None:
    """3 is embedded as (3, 10); a block whose way back is zero leaves it so. Normalised (-1, 1): -5 + 7 + 4 = 6."""
    made = Simba(1, 1, layers(2), 1)
    fill(made.embedding, [[1.0, 3.0]], [0.0, 1.0])
    fill(made.blocks[0].down, [[0.0, 0.0]] * 8, 0.0)
    fill(made.output, [[5.0], [7.0]], 4.0)
    torch.testing.assert_close(made(torch.tensor([[3.0]])), torch.tensor([[[6.0]]]), rtol=1e-4, atol=0)


def test_members_are_networks_of_their_own() -> None:
    torch.manual_seed(0)
    both, x = network(2, 3, layers(4, 4), 2), torch.randn(5, 3)
    assert isinstance(both, Simba) and both(x).shape == (2, 5, 2)
    for member in range(2):
        one = Simba(1, 3, layers(4, 4), 2)
        one.load_state_dict({name: tensor[member : member + 1] for name, tensor in both.state_dict().items()})
        assert torch.equal(one(x)[0], both(x)[member])


def test_sizes_and_initial_weights() -> None:
    settings = SACSettings(network="simba", hidden_sizes=(32,))  # type: ignore[arg-type]
    assert (tuple(settings.actor_layers), tuple(settings.critic_layers)) == ((128,), (512, 512))
    assert settings.critic_layers.dense_sizes == (512, 2048, 512, 2048, 512)
    torch.manual_seed(0)
    made = Simba(2, 16, layers(64), 4)
    for weight in made.embedding.weight.detach():
        torch.testing.assert_close(weight @ weight.T, torch.eye(16), rtol=0, atol=1e-5)
    assert made.blocks[0].up.weight.std().item() == pytest.approx(math.sqrt(2 / 64), rel=0.05)
    assert made.blocks[0].down.weight.std().item() == pytest.approx(math.sqrt(2 / 256), rel=0.05)
    assert not any(one.any() for name, one in made.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_seeds_together_are_each_alone(algo: str) -> None:
    settings = {"normalize_observations": True, "optimizer": "AdamW", "learning_rate": 1e-2}
    together = train(learner(algo, SMALL, (5, 0), **settings))
    for index, seed in enumerate((5, 0)):
        alone, among = state(train(learner(algo, SMALL, (seed,), **settings))), state(together, index)
        assert all(torch.equal(among[name], tensor) for name, tensor in alone.items())
    before = state(learner(algo, SMALL, (5,), **settings))
    assert not any(torch.equal(before[name], one) for name, one in state(together).items() if "blocks.0.up" in name)


@pytest.mark.parametrize("algo", [pytest.param(name, marks=pytest.mark.sweep) for name in ALGORITHMS])
def test_compiled_is_eager(algo: str) -> None:
    eager, compiled = (state(train(learner(algo, SMALL, (5, 0), compiled=one), 2)) for one in (False, True))
    for name, tensor in compiled.items():
        torch.testing.assert_close(tensor, eager[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "simba", "layer_norm": True}, "network.layer_norm must be left out where kind is simba"),
        ({"critic": {"kind": "simba"}, "dropout": 0.1}, "network.dropout must be left out where kind is simba"),
        ({"kind": "simba", "hidden_sizes": [8, 4]}, "network.hidden_sizes must be one width for every block of simba"),
        ({"kind": "simba", "hidden_sizes": []}, "network.hidden_sizes must be one width for every block of simba"),
        ({"kind": "simbaa"}, "network.kind must be one of mlp, simba, got 'simbaa'; did you mean simba?"),
    ],
)
def test_rejected_layers(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as rejected:
        parse_settings(TrainConfig("sac", "Pendulum-v1", algo_kwargs={"network": given}))
    assert message in str(rejected.value)


@pytest.mark.parametrize("algo", algorithm_names())
@pytest.mark.parametrize("role", [None, "critic"])
def test_an_algorithm_that_cannot_take_simba_names_what_it_takes(algo: str, role: str | None) -> None:
    config = TrainConfig(algo, "x", algo_kwargs={"network": {role: {"kind": "simba"}} if role else {"kind": "simba"}})
    if algo in ALGORITHMS:
        assert learner_class(algo).settings_type.NETWORK_KINDS == ("mlp", "simba")
        parse_settings(config)
        return
    name = f"network.{role}.kind" if role else "network.kind"
    with pytest.raises(ValueError, match=rf"{name} must be mlp for this algorithm, got 'simba'"):
        parse_settings(config)


def test_images_are_rejected_as_by_an_mlp() -> None:
    made = Simba(1, 3, layers(4), 1)
    with pytest.raises(ValueError, match="takes vectors"):
        made(Tensor(1, 3, 4, 4))


@pytest.mark.parametrize("normalize", [False, True])
def test_a_run_without_the_running_statistics_gets_a_notice(
    normalize: bool, quick_config: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = {"network": SMALL, "normalize_observations": normalize}
    run = train_run(quick_config("td3", tmp_path, settings, total_timesteps=24, eval_episodes=0), show_progress=False)
    assert ("network simba without normalize_observations: true" in capfd.readouterr().err) != normalize
    assert resume_training(run.run_dir, total_timesteps=26, show_progress=False).metrics["global_step"] == 26
