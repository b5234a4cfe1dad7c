"""DrQ-v2's update against numbers worked out by hand, its noise and its schedule."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from seed_harness import filled_replay, make_learner
from test_drq_update import SIZES, Critics, TopLeft, random_batch
from torch import Tensor, nn

from rl_training.algorithms import DrQv2, drqv2_loss
from rl_training.algorithms.drqv2 import DrQv2Settings, noisy_action
from rl_training.models import CNNDrQv2Model


def make_drqv2(seed: int = 0, **changes: Any) -> DrQv2:
    torch.manual_seed(seed)
    return DrQv2(model=CNNDrQv2Model((6, 20, 20), 2, **SIZES), **changes)


# --- losses -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_drqv2_loss_by_hand(shape: tuple[int, ...]) -> None:
    """Critics: errors 1, -1 give 1; errors 0, 2 give 2; together 3. Actor: -mean(min(4, 5), min(3, 1)) = -2.5."""
    values = {
        "q1_values": torch.tensor([2.0, 3.0]),
        "q2_values": torch.tensor([1.0, 6.0]),
        "target_q_values": torch.tensor([1.0, 4.0]),
        "sampled_q1": torch.tensor([4.0, 3.0]),
        "sampled_q2": torch.tensor([5.0, 1.0]),
    }
    expected = {"critic_loss": 3.0, "actor_loss": -2.5, "target_q_mean": 2.5}
    values = {name: value.view(shape) for name, value in values.items()}
    assert {name: value.item() for name, value in drqv2_loss(values).items()} == pytest.approx(expected)


class Policy(nn.Module):
    """The action m * feature / 10."""

    def __init__(self, m: float) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.tensor(m))

    def forward(self, features: Tensor) -> Tensor:
        return self.m * features / 10


class HandModel(nn.Module):
    action_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.actor, self.critic = TopLeft(1.0), Policy(0.5), Critics([1.0, 2.0])


def hand_losses(std: float, **batch: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One row: obs unmoved shows 1 first, next_obs moved one right shows 6."""
    learner = DrQv2(model=HandModel(), gamma=0.5, augmentation_pad=1)
    nets = learner.nets()
    nets.groups["target_critic"]["w"].copy_(torch.tensor([3.0, 4.0]))
    nets.std.fill_(std)
    values = {
        "obs": torch.tensor([[[[1, 2], [3, 4]]]], dtype=torch.uint8),
        "next_obs": torch.tensor([[[[5, 6], [7, 8]]]], dtype=torch.uint8),
        "actions": torch.tensor([[-1.0]]),
        "rewards": torch.tensor([4.0]),
        "dones": torch.tensor([0.0]),
        **batch,
    }
    noise = {
        "shift": torch.tensor([[0.5, 0.5]]),
        "next_shift": torch.tensor([[0.5, 0.9]]),
        "next_action": torch.tensor([[2.0]]),
        "action": torch.tensor([[-1.0]]),
    }
    critic = learner.critic_loss(nets, values, noise)
    actor = learner.actor_loss(nets, {**values, **critic.carried}, noise)
    return critic.metrics, actor.metrics


@pytest.mark.parametrize(
    ("std", "batch", "target", "actor_loss"),
    [
        # The policy acts 0.3 at 6, with noise 2 * 0.1: 0.5. Target critics on online features: 3 * 0.5 + 6 = 7.5.
        # The actor acts 0.05 - 0.1 at 1: Q = min(-0.05, -0.1) + 1 = 0.9.
        (0.1, {}, 4 + 0.5 * 7.5, -0.9),
        # Noise 2 and -1, clipped to 0.3 and -0.3: actions 0.6 and -0.25.
        (1.0, {}, 4 + 0.5 * 7.8, -0.5),
        (0.1, {"dones": torch.tensor([1.0])}, 4.0, -0.9),
        # n-step returns bring the discount of the state they end in.
        (0.1, {"discounts": torch.tensor([0.125])}, 4 + 0.125 * 7.5, -0.9),
    ],
    ids=["noise", "clipped noise", "terminal", "n-step"],
)
def test_losses_by_hand(std: float, batch: Any, target: float, actor_loss: float) -> None:
    """Critics at action -1 and feature 1: 0 and -1."""
    critic, actor = hand_losses(std, **batch)
    assert critic["target_q_mean"].item() == pytest.approx(target)
    assert critic["critic_loss"].item() == pytest.approx(target**2 + (target + 1) ** 2)
    assert actor["actor_loss"].item() == pytest.approx(actor_loss)


def test_at_a_bound_the_action_is_clamped_and_its_gradient_is_not() -> None:
    mean = torch.tensor([0.9, -0.2], requires_grad=True)
    action = noisy_action(mean, torch.tensor([0.3, 0.1]))
    assert action.tolist() == pytest.approx([1.0, -0.1])
    (slope,) = torch.autograd.grad(action.sum(), mean)
    assert slope.tolist() == [1.0, 1.0]


def test_the_encoder_learns_from_the_critics_alone_and_has_no_target() -> None:
    learner = make_drqv2()
    assert [phase.groups for phase in learner.engine.phases] == [("encoder", "critic"), ("actor",)]
    assert set(learner.engine.flat) == {"encoder", "critic", "actor", "target_critic", "schedule"}
    critic = learner.engine.flat["critic"].clone()
    learner.update(random_batch(), global_step=0)
    moved = learner.engine.flat["target_critic"] - critic
    torch.testing.assert_close(moved, 0.01 * (learner.engine.flat["critic"] - critic), atol=1e-7, rtol=1e-2)


# --- the schedule -----------------------------------------------------------------------------------------------------
def test_the_noise_falls_with_the_agents_steps_whatever_the_run_is_long() -> None:
    learner = make_drqv2(std_steps=100)
    std = learner.nets().std
    assert std.item() == learner.exploration(0.9) == 1.0
    for step, expected in ((0, 1.0), (50, 0.55), (100, 0.1), (1000, 0.1)):
        learner.update(random_batch(), global_step=step)
        assert std.item() == pytest.approx(expected) and learner.exploration(0.0) == pytest.approx(expected)


def test_a_runs_updates_have_the_noise_of_their_step() -> None:
    learner = make_learner("drqv2")
    learner.train(filled_replay("drqv2", 1), 2, global_step=50_000)
    assert learner.nets().std.item() == pytest.approx(0.55)


def test_exploring_actions_have_the_schedules_spread_unclipped_by_noise_clip() -> None:
    learner = make_drqv2()
    obs = random_batch(size=1)["obs"].expand(400, -1, -1, -1).unsqueeze(0).contiguous()
    with torch.no_grad():
        learner.nets().std.fill_(0.2)
    explored = learner.act_explore(obs, 0, 0.0).action
    apart = explored - learner.act_greedy(obs).action
    assert apart.std().item() == pytest.approx(0.2, rel=0.1) and apart.abs().max() > 0.4
    assert explored.abs().max() <= 1


def test_the_schedule_is_part_of_the_state() -> None:
    first, second = make_drqv2(std_steps=100), make_drqv2(1, std_steps=100)
    first.update(random_batch(), global_step=50)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    obs = random_batch()["obs"].unsqueeze(0)
    assert second.exploration(0.0) == pytest.approx(0.55)
    assert torch.equal(first.act_explore(obs, 1, 0.0).action, second.act_explore(obs, 1, 0.0).action)
    for learner in (first, second):
        learner.update(random_batch(seed=1), global_step=60)
    states = first.state_dict(), second.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


# --- one update, model and settings -----------------------------------------------------------------------------------
def test_update_stand_alone() -> None:
    learner = make_drqv2(learning_rate=1e-3, gamma=0.99, tau=0.01)
    result = learner.update(random_batch())
    assert result.num_gradient_steps == learner.update_count == 1
    assert set(result.metrics) == {"critic_loss", "actor_loss", "target_q_mean"}
    plain = (60 * torch.arange(4)).to(torch.uint8).view(4, 1, 1, 1).expand(4, 6, 20, 20)
    batch = {**random_batch(), "obs": plain, "dones": torch.ones(4)}
    losses = [learner.update(batch).metrics["critic_loss"] for _ in range(60)]
    assert all(math.isfinite(loss) for loss in losses) and losses[-1] < 0.3 * losses[0]


def test_the_networks_are_those_of_the_paper() -> None:
    model = CNNDrQv2Model((9, 84, 84), 6)
    assert model.encoder.features == 39200
    assert [tuple(layer.weight.shape) for layer in model.actor.head.net.layers] == [
        (1, 50, 1024), (1, 1024, 1024), (1, 1024, 6),
    ]  # fmt: skip
    black = torch.zeros(1, 9, 84, 84, dtype=torch.uint8)
    first = torch.relu(
        torch.nn.functional.conv2d(torch.full((1, 9, 84, 84), -0.5), model.encoder.layers[0].weight, stride=2)
    )
    hidden = first
    for layer in model.encoder.layers[1:]:
        hidden = torch.relu(torch.nn.functional.conv2d(hidden, layer.weight))
    torch.testing.assert_close(model.encoder(black), hidden.flatten(1))


def test_one_observation_is_a_batch_of_one() -> None:
    torch.manual_seed(0)
    model, obs = CNNDrQv2Model((6, 20, 20), 2, **SIZES), random_batch()["obs"]
    batch, single = model.sample_actions(obs), model.sample_actions(obs[1])
    torch.testing.assert_close(single.actions, batch.actions[1:2], atol=1e-6, rtol=1e-5)
    assert batch.actions.abs().max() <= 1 and not batch.logprobs.any()
    q1, q2 = model.q_values(obs[1], torch.zeros(2))
    torch.testing.assert_close(torch.cat([q1, q2]), torch.stack(model.q_values(obs, torch.zeros(4, 2)))[:, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"std_steps": 0}, "std_steps must be >= 1, got 0"),
        ({"std_end": -0.1}, "std_end must be >= 0, got -0.1"),
        ({"n_step": 0}, "n_step must be >= 1, got 0"),
        ({"encoder": "nature"}, "unexpected keyword argument 'encoder'"),
    ],
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        DrQv2Settings(**settings)
