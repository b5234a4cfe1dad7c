"""TD3's losses and update against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import TD3
from rl_training.algorithms.td3 import TD3Settings, smoothed
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.models import MLPTD3Model

METRICS = {"critic_loss", "actor_loss", "target_q_mean"}


class LinearPolicy(nn.Module):
    """The action a * obs."""

    def __init__(self, a: float) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.tensor(a))

    def forward(self, obs: Tensor) -> Tensor:
        return self.a * obs


class LinearCritics(nn.Module):
    """Q_i = w_i * action + v_i * obs."""

    def __init__(self, w: list[float], v: list[float]) -> None:
        super().__init__()
        self.w, self.v = nn.Parameter(torch.tensor(w)), nn.Parameter(torch.tensor(v))

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.w[:, None] * actions[:, 0] + self.v[:, None] * obs[:, 0]


class HandModel(nn.Module):
    action_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = LinearPolicy(0.5), LinearCritics([1.0, 3.0], [2.0, 2.0])


def hand_learner(**changes: Any) -> TD3:
    """The online networks above; target networks that differ: action 0.25 * obs, Q = 10 a + 2 s and -20 a + 5 s."""
    learner = TD3(model=HandModel(), **{"learning_rate": 1e-9, "gamma": 0.5, "tau": 0.0, **changes})
    groups = learner.engine.groups()
    groups["target_actor"]["a"].fill_(0.25)
    groups["target_critic"]["w"].copy_(torch.tensor([[10.0, -20.0]]))
    groups["target_critic"]["v"].copy_(torch.tensor([[2.0, 5.0]]))
    return learner


def hand_batch(done: float = 0.0) -> dict[str, Tensor]:
    column = torch.ones(2, 1)
    return {
        "obs": 0.5 * column,
        "actions": -column,
        "rewards": torch.full((2,), 4.0),
        "next_obs": 2 * column,
        "dones": torch.full((2,), done),
    }


def losses(learner: TD3, noise: list[float], done: float = 0.0) -> dict[str, float]:
    nets, given = learner.nets(), {"next_action": torch.tensor(noise).unsqueeze(1)}
    with torch.no_grad():
        metrics = {
            **learner.critic_loss(nets, hand_batch(done), given).metrics,
            **learner.actor_loss(nets, hand_batch(done), given).metrics,
        }
    return {name: value.item() for name, value in metrics.items()}


def test_smoothing_noise_is_clipped_and_then_the_action() -> None:
    """0.2 * 1 is within the clip of 0.5, 0.2 * 10 is not; 0.9 + 0.5 and -0.9 - 0.5 leave the range of actions."""
    action = torch.tensor([0.0, 0.0, 0.0, 0.9, -0.9])
    noise = torch.tensor([1.0, 10.0, -10.0, 10.0, -10.0])
    expected = torch.tensor([0.2, 0.5, -0.5, 1.0, -1.0])
    torch.testing.assert_close(smoothed(action, noise, 0.2, 0.5), expected)


def test_losses_by_hand() -> None:
    """Target action 0.25 * 2 = 0.5; the noises 0.2 * 1 and clip(0.2 * -9) = -0.5 make it 0.7 and 0.

    Target critics: row 1: 10 * 0.7 + 4 = 11 and -14 + 10 = -4, the least -4; row 2: 4 and 10, the least 4.
    Targets: 4 + 0.5 * (-4) = 2 and 4 + 0.5 * 4 = 6. Predictions at s = 0.5, a = -1: -1 + 1 = 0 and -3 + 1 = -2.
    Critic loss: (4 + 36) / 2 + (16 + 64) / 2 = 60. Actor: action 0.25, first critic 0.25 + 1 = 1.25.
    """
    expected = {"critic_loss": 60.0, "target_q_mean": 4.0, "actor_loss": -1.25}
    assert losses(hand_learner(), [1.0, -9.0]) == pytest.approx(expected)


def test_nothing_is_behind_a_terminal_state() -> None:
    """Targets 4 and 4: (16 + 16) / 2 + (36 + 36) / 2 = 52."""
    result = losses(hand_learner(), [1.0, -9.0], done=1.0)
    assert result == pytest.approx({"critic_loss": 52.0, "target_q_mean": 4.0, "actor_loss": -1.25})


def test_settings_reach_the_target() -> None:
    """Noise 0.1 * 3 clipped to 0.25 makes the target action 0.75: min(7.5 + 4, -15 + 10) = -5; 4 - 2.5 = 1.5."""
    learner = hand_learner(policy_noise=0.1, noise_clip=0.25)
    assert losses(learner, [3.0, 3.0])["target_q_mean"] == pytest.approx(1.5)


# --- the delay ---------------------------------------------------------------------------------------------------
def filled_replay() -> ReplayBuffer:
    replay = ReplayBuffer(EnvSpec(vector(1), continuous(1)), capacity=8, num_envs=1, seeds=1)
    for tensor in replay.storage.values():
        if tensor.is_floating_point():
            tensor.normal_(generator=torch.Generator().manual_seed(0)).tanh_()
    replay.finish_writing(8)
    return replay


@pytest.mark.parametrize("per_step", [1, 3])
def test_actor_and_targets_wait_for_every_third_update(per_step: int) -> None:
    learner = hand_learner(policy_delay=3, learning_rate=0.01, tau=0.5, batch_size=4, buffer_capacity=8)
    seen, replay = [], filled_replay()
    for _ in range(7 // per_step):
        before = {name: flat.clone() for name, flat in learner.engine.flat.items()}
        learner.train(replay, per_step, global_step=0)
        seen.append([not torch.equal(flat, before[name]) for name, flat in learner.engine.flat.items()])
    assert list(learner.engine.flat) == ["actor", "critic", "target_actor", "target_critic"]
    waiting, moving = [False, True, False, False], [True, True, True, True]
    assert seen == ([waiting, waiting, moving, waiting, waiting, moving, waiting] if per_step == 1 else [moving] * 2)


def test_the_targets_follow_the_updated_networks() -> None:
    """An update of everything: target 0.25 + 0.1 * (online - 0.25), where Adam's first step moved 0.5 by 0.01."""
    learner = hand_learner(learning_rate=0.01, tau=0.1)
    learner.update(hand_batch())
    groups = learner.nets().groups
    assert groups["actor"]["a"].item() == pytest.approx(0.51, abs=1e-5)  # up: a larger action is worth more
    assert groups["target_actor"]["a"].item() == pytest.approx(0.25 + 0.1 * (0.51 - 0.25), abs=1e-5)
    online, target = groups["critic"]["w"][0].item(), groups["target_critic"]["w"][0].item()
    assert target == pytest.approx(10 + 0.1 * (online - 10), abs=1e-5)


def test_update_stand_alone() -> None:
    torch.manual_seed(0)
    learner = TD3(model=MLPTD3Model(obs_dim=3, action_dim=2, hidden_sizes=(16,)), learning_rate=1e-3)
    generator = torch.Generator().manual_seed(0)
    batch = {
        "obs": torch.randn(8, 3, generator=generator),
        "actions": torch.rand(8, 2, generator=generator) * 2 - 1,
        "rewards": torch.randn(8, generator=generator),
        "next_obs": torch.randn(8, 3, generator=generator),
        "dones": torch.ones(8),
    }
    result = learner.update(batch, global_step=8)
    assert (result.num_gradient_steps, learner.update_count) == (1, 1)
    assert set(result.metrics) == METRICS and all(math.isfinite(value) for value in result.metrics.values())
    first = result.metrics["critic_loss"]
    for step in range(200):
        result = learner.update(batch, global_step=step)
    assert result.metrics["critic_loss"] < 0.5 * first


# --- acting, model, settings ---------------------------------------------------------------------------------------
def test_exploration_adds_noise_within_the_bounds() -> None:
    learner = hand_learner(exploration_noise=0.3)
    nets, obs = learner.nets(), torch.tensor([[1.0], [1.0], [1.9]])
    amount = torch.tensor([learner.exploration(0.5)])
    actions = learner.explore(nets, obs, torch.tensor([[0.0], [1.0], [1.0]]), amount).action
    torch.testing.assert_close(actions, torch.tensor([[0.5], [0.8], [1.0]]))
    torch.testing.assert_close(learner.greedy(nets, obs).action, 0.5 * obs)


@pytest.mark.parametrize("hidden_sizes", [(), (8,), [8, 8]])
def test_one_observation_is_a_batch_of_one(hidden_sizes: Any) -> None:
    torch.manual_seed(0)
    model = MLPTD3Model(obs_dim=3, action_dim=2, hidden_sizes=hidden_sizes)
    obs, actions = 9 * torch.randn(4, 3), torch.rand(4, 2) * 2 - 1
    sampled = model.sample_actions(obs)
    torch.testing.assert_close(model.sample_actions(obs[1]).actions, sampled.actions[1:2])
    assert sampled.actions.abs().max() <= 1 and sampled.logprobs.shape == (4,)
    one, all_rows = model.q_values(obs[1], actions[1]), model.q_values(obs, actions)
    torch.testing.assert_close(torch.cat(one), torch.stack(all_rows)[:, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policy_noise": -0.1}, "policy_noise must be >= 0"),
        ({"noise_clip": -1}, "noise_clip must be >= 0"),
        ({"noise_clip": float("nan")}, "noise_clip must be >= 0"),
        ({"policy_delay": 0}, "policy_delay must be >= 1"),
        ({"policy_delay": 1.5}, "policy_delay must be an integer"),
        ({"exploration_noise": -1}, "exploration_noise must be >= 0"),
        ({"tau": 1.5}, "tau must be in [0, 1]"),
        ({"gradient_updates_per_step": 0}, "gradient_updates_per_step must be >= 1"),
    ],
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    for refuse in (TD3Settings, hand_learner):
        with pytest.raises(ValueError) as refused:
            refuse(**settings)
        assert str(refused.value).startswith(message)
