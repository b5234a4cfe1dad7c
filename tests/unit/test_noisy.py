"""Noisy layers against the paper's formula, and exploration by them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from rl_training.algorithms import DQN, QRDQN
from rl_training.models import MLPQNetwork, MLPQRQNetwork
from rl_training.models.noisy import NoisyLinear


def test_a_layer_by_hand() -> None:
    """One input of 2, one output. w = 3 + 0.5 * f(4) f(-9) = 3 - 0.5 * 6 = 0; b = 1 + 0.25 * f(-9) = 0.25."""
    layer = NoisyLinear(1, 1)
    for name, value in (("weight", 3.0), ("weight_sigma", 0.5), ("bias", 1.0), ("bias_sigma", 0.25)):
        getattr(layer, name).data.fill_(value)
    x = torch.tensor([[[2.0]]])
    assert layer(x, torch.tensor([4.0, -9.0])).item() == pytest.approx(2 * 0.0 + 0.25)
    assert layer(x).item() == pytest.approx(7.0)


def test_a_layer_is_the_product_with_shaken_weights() -> None:
    layer, x, noise = NoisyLinear(5, 3), torch.randn(1, 4, 5), torch.randn(8)
    f = noise.sign() * noise.abs().sqrt()
    weight = layer.weight + layer.weight_sigma * torch.outer(f[:5], f[5:])
    torch.testing.assert_close(layer(x, noise), x @ weight + layer.bias + layer.bias_sigma * f[5:])
    own = torch.randn(4, 8)
    rows = torch.cat([layer(x[:, row : row + 1], own[row]) for row in range(4)], 1)
    torch.testing.assert_close(layer(x, own), rows)


def test_layers_start_as_in_the_paper() -> None:
    layer = NoisyLinear(16, 3)
    assert layer.weight.abs().max() <= 0.25 and layer.weight_sigma.unique().tolist() == [0.125]
    assert layer.bias_sigma.unique().tolist() == [0.125]


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize(("hidden", "reads"), [((), 0), ((8,), 1), ((8, 6), 1), ((8, 6, 4), 1)])
def test_every_layer_but_the_one_that_reads_the_observation_is_noisy(
    dueling: bool, hidden: tuple[int, ...], reads: int
) -> None:
    network = MLPQNetwork(5, 2, hidden, dueling=dueling, noisy=True)
    layers = [layer for part in network.parts for layer in part.layers]
    plain = [layer for layer in layers if not isinstance(layer, NoisyLinear)]
    # With one hidden layer, each of the two streams has a layer of its own that reads the observation.
    assert len(plain) == (2 if dueling and len(hidden) == 1 else reads)
    assert all(layer.weight.shape[-2] == 5 for layer in plain)
    assert network.noise_size == sum(layer.noise_size for layer in layers if isinstance(layer, NoisyLinear)) > 0


def test_noise_reaches_every_noisy_layer() -> None:
    network, obs = MLPQRQNetwork(3, 2, (6, 6), 4, dueling=True, noisy=True), torch.randn(5, 3)
    noise = torch.randn(network.noise_size)
    still = network(obs)
    sizes = [layer.noise_size for part in network.parts for layer in part.layers if isinstance(layer, NoisyLinear)]
    starts = np.cumsum([0, *sizes])
    assert len(sizes) == 4 and starts[-1] == network.noise_size
    for start, stop in pairwise(starts):
        rest = noise.clone()
        rest[start:stop] = 0
        assert not torch.equal(network(obs, noise), network(obs, rest))
    assert torch.equal(network(obs, torch.zeros(network.noise_size)), still)


def test_a_noisy_learner_explores_by_its_weights_alone() -> None:
    learner = DQN(q_network=MLPQNetwork(3, 4, (16, 16), noisy=True), noisy=True)
    obs = torch.randn(1, 200, 3, generator=torch.Generator().manual_seed(0))
    assert learner.exploration(0.0) == 0.0
    greedy, exploring = learner.act_greedy(obs).action, learner.act_explore(obs, 0, 0.0).action
    assert 0 < (greedy != exploring).float().mean() < 0.9
    assert torch.equal(exploring, learner.act_explore(obs, 0, 0.0).action)
    for parameter in (p for name, p in learner.engine.groups()["q"].items() if "sigma" in name):
        parameter.zero_()
    assert torch.equal(learner.act_explore(obs, 0, 0.0).action, learner.act_greedy(obs).action)


def test_the_loss_trains_the_size_of_the_noise_with_noise_of_its_own() -> None:
    learner = QRDQN(q_network=MLPQRQNetwork(3, 2, (8, 8), 5, noisy=True), noisy=True, num_quantiles=5)
    batch = {
        "obs": torch.randn(6, 3),
        "actions": torch.randint(2, (6,)),
        "rewards": torch.randn(6),
        "next_obs": torch.randn(6, 3),
        "dones": torch.zeros(6),
    }
    before = learner.state_dict()["params.q.net.layers.2.bias_sigma"].clone()
    learner.update(batch)
    assert (learner.state_dict()["params.q.net.layers.2.bias_sigma"] != before).any()
    nets = learner.nets()
    noise = {name: torch.randn(spec.shape) for name, spec in learner.noise(6).items()}
    base = learner.loss(nets, batch, noise).loss
    for name in ("obs", "next_obs"):
        assert learner.loss(nets, batch, {**noise, name: torch.randn_like(noise[name])}).loss != base


def test_a_network_without_noise_cannot_be_noisy() -> None:
    with pytest.raises(ValueError, match="noisy must be false for a network without noisy layers"):
        DQN(q_network=MLPQNetwork(3, 2, (8,)), noisy=True)
