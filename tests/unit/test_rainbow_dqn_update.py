"""Rainbow's update against a slow reference: every switch at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.algorithms.base import BoundNetwork
from rl_training.algorithms.rainbow_dqn import RainbowDQN, RainbowSettings
from rl_training.models import MLPC51QNetwork

ATOMS = np.linspace(-1.0, 2.0, 7)


def make_learner() -> RainbowDQN:
    torch.manual_seed(0)
    sizes = {"num_atoms": 7, "v_min": -1.0, "v_max": 2.0}
    network = MLPC51QNetwork(obs_dim=3, action_dim=4, hidden_sizes=(8, 8), dueling=True, noisy=True, **sizes)
    learner = RainbowDQN(q_network=network, **sizes)
    for group in ("q", "target_q"):  # so that the target network is another one
        for tensor in learner.engine.groups()[group].values():
            tensor += 0.3 * torch.randn(tensor.shape)
    return learner


def make_batch(rows: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "obs": torch.randn(rows, 3, generator=generator),
        "next_obs": torch.randn(rows, 3, generator=generator),
        "actions": torch.randint(4, (rows,), generator=generator),
        "rewards": torch.randn(rows, generator=generator),
        "dones": (torch.rand(rows, generator=generator) < 0.4).float(),
        "discounts": torch.tensor([0.9**3, 0.9, 0.9**2])[torch.arange(rows) % 3],  # n-step: some episodes ended sooner
        "weights": torch.rand(rows, generator=generator) + 0.1,
    }


def test_the_loss_against_a_slow_reference() -> None:
    learner, batch = make_learner(), make_batch(12)
    nets = learner.nets()
    noise = {name: torch.randn(spec.shape) for name, spec in learner.noise(12).items()}
    assert set(noise) == {"obs", "next_obs", "chooser"}, "each look has noise of its own"
    result = learner.loss(nets, batch, noise)

    def probabilities(network: BoundNetwork[torch.Tensor], obs: str, which: str) -> np.ndarray:
        return network(batch[obs], noise[which]).softmax(-1).detach().double().numpy()

    now = probabilities(nets.q, "obs", "obs")
    after, chooser = probabilities(nets.target.q, "next_obs", "next_obs"), probabilities(nets.q, "next_obs", "chooser")
    differing, losses, errors = 0, [], []
    for row in range(12):
        best = int((chooser[row] * ATOMS).sum(-1).argmax())  # the online network chooses
        differing += best != int((after[row] * ATOMS).sum(-1).argmax())
        target = np.zeros(7)
        for atom, mass in zip(ATOMS, after[row, best], strict=True):  # the target network says what it is worth
            discount = float(batch["discounts"][row]) * (1 - float(batch["dones"][row]))
            value = min(max(float(batch["rewards"][row]) + discount * atom, -1.0), 2.0)
            place = (value + 1) / 0.5
            low = min(int(place), 5)
            target[low] += mass * (low + 1 - place)
            target[low + 1] += mass * (place - low)
        entropy = -(target * np.log(now[row, int(batch["actions"][row])])).sum()
        losses.append(float(batch["weights"][row]) * entropy)
        errors.append(entropy + (target[target > 0] * np.log(target[target > 0])).sum())
    assert differing, "else this could not tell double learning from none"
    assert result.loss.item() == pytest.approx(np.mean(losses), rel=1e-5)
    assert result.row_errors is not None and result.row_errors.tolist() == pytest.approx(errors, rel=1e-4, abs=1e-5)


def test_the_parts_are_the_papers() -> None:
    settings = RainbowSettings()
    assert (settings.double, settings.dueling, settings.prioritized, settings.noisy) == (True,) * 4
    assert (settings.n_step, settings.num_atoms, settings.v_min, settings.v_max) == (3, 51, -10.0, 10.0)
    assert (settings.prioritized_alpha, settings.prioritized_beta_start, settings.adam_eps) == (0.5, 0.4, 1.5e-4)
