"""TD3+BC's loss, update and normalised observations against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import check_seeds_together
from test_sac_update import random_batch
from test_td3_update import HandModel, hand_batch

from rl_training.algorithms import TD3, TD3BC
from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.specs import vector
from rl_training.data.datasets.prepare import observation_statistics
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.models import MLPTD3Model
from rl_training.run.agent import load_agent
from rl_training.runtime.td3_bc_trainer import train_td3_bc

METRICS = {"critic_loss", "actor_loss", "bc_loss", "q_weight", "target_q_mean"}


def make_td3_bc(seed: int = 0, **changes: Any) -> TD3BC:
    torch.manual_seed(seed)
    return TD3BC(model=MLPTD3Model(obs_dim=3, action_dim=1, hidden_sizes=(32, 32)), **changes)


def test_the_actors_loss_by_hand() -> None:
    """At s = 1/2 the policy says 1/4, the first critic 1/4 + 1 = 1.25, and the recorded action is -1.

    The weight is 2.5 / 1.25 = 2, cloning costs 1.25^2 = 1.5625, so the loss is 1.5625 - 2 * 1.25. Its slope in a, the
    policy's one number, is 2 * 1.25 * s - 2 * 1 * s = 0.25: Adam's first step lowers a by the learning rate. Were the
    weight not detached, it would be 1.25: the weighted value would then be 2.5 whatever the policy does.
    """
    learner = TD3BC(model=HandModel(), learning_rate=0.1, normalize_observations=False)
    groups, noise = learner.nets().groups, {"next_action": torch.zeros(2, 1)}
    policy = groups["actor"]["a"].clone().requires_grad_()
    nets = learner.binding.networks_of({**groups, "actor": {"a": policy}})
    loss, metrics, *_ = learner.actor_loss(nets, hand_batch(), noise)
    assert loss.item() == pytest.approx(-0.9375)
    assert metrics["bc_loss"].item() == pytest.approx(1.5625) and metrics["q_weight"].item() == pytest.approx(2.0)
    (slope,) = torch.autograd.grad(loss, policy)
    assert slope.item() == pytest.approx(0.25)


def test_the_weight_is_by_the_mean_size_of_the_values() -> None:
    """Values of both signs: the mean of |Q| counts, not |mean of Q|."""
    learner = TD3BC(model=HandModel(), bc_alpha=5.0, normalize_observations=False)
    batch = {**hand_batch(), "obs": torch.tensor([[1.0], [-3.0]])}  # Q = 0.5 s + 2 s: 2.5 and -7.5
    metrics = learner.actor_loss(learner.nets(), batch, {}).metrics
    assert metrics["q_weight"].item() == pytest.approx(1.0)


def test_the_critics_are_td3s() -> None:
    mine = TD3BC(model=HandModel(), normalize_observations=False).update(hand_batch()).metrics
    theirs = TD3(model=HandModel()).update(hand_batch()).metrics
    assert mine["critic_loss"] == theirs["critic_loss"] and mine["target_q_mean"] == theirs["target_q_mean"]


def test_the_actor_and_the_targets_wait() -> None:
    learner = make_td3_bc(policy_delay=2)
    batch = {name: value.unsqueeze(0) for name, value in random_batch().items()}
    moved = []
    for _ in range(4):
        before = {name: flat.clone() for name, flat in learner.engine.flat.items()}
        learner.engine.update(batch, learner.engine.host_noise(learner.noise(len(batch["rewards"][0]))))
        moved.append({name for name, flat in learner.engine.flat.items() if not torch.equal(before[name], flat)})
    assert moved == [{"critic"}, {"critic", "actor", "target_critic", "target_actor"}] * 2


def test_update_returns_every_metric_at_once_and_state_round_trips() -> None:
    learner = make_td3_bc()
    learner.set_obs_stats(np.ones(3), np.full(3, 2.0))
    result = learner.update(random_batch(), global_step=0)
    assert result.num_gradient_steps == 1 and set(result.metrics) == METRICS and learner.update_count == 1
    assert all(math.isfinite(value) for value in result.metrics.values())
    other = make_td3_bc(seed=9)
    other.load_state_dict({name: tensor.clone() for name, tensor in learner.state_dict().items()})
    for one in (learner, other):
        one.update(random_batch(1))
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_statistics_of_a_data_set() -> None:
    """1 and 3: mean 2, standard deviation 1 of the whole set, not of a sample; to which 0.001 is added."""
    rows = np.array([[1.0, 5.0], [3.0, 5.0]], np.float32)
    column = np.zeros(2, np.float32)
    data = TransitionDataset(obs=rows, actions=rows, rewards=column, next_obs=rows, dones=column)
    mean, std = observation_statistics(data, vector(2))
    assert mean.tolist() == [2.0, 5.0] and std.tolist() == [1.0, 0.0]
    learner = TD3BC(model=MLPTD3Model(2, 2, ()))
    learner.set_obs_stats(mean, std)
    assert learner.normalizer is not None
    seen = learner.normalizer.normalized(learner.nets().groups, torch.tensor([[3.0, 6.0]]))
    torch.testing.assert_close(seen, torch.tensor([[1 / 1.001, 1000.0]]))


@pytest.mark.sweep
def test_a_run_standardises_by_its_data_and_so_does_its_agent(quick_config, tmp_path: Path) -> None:
    config = quick_config("td3_bc", tmp_path, seeds=(1, 2), env_kwargs={}, eval_episodes=0)
    result = train_td3_bc(config, show_progress=False)
    from rl_training.data.datasets.generate import record_random
    from rl_training.envs.host.factory import EnvSource

    obs = record_random(EnvSource("Pendulum-v1"), 64, seed=0).obs.astype(np.float64)
    stored = load_checkpoint(result.checkpoint_path).tensors("learner.safetensors")
    for row in range(2):
        np.testing.assert_allclose(stored["params.normalizer.mean"][row], obs.mean(0), rtol=1e-5)
        np.testing.assert_allclose(stored["params.normalizer.scale"][row], 1 / (obs.std(0) + 1e-3), rtol=1e-5)
    agent = load_agent(load_agent(result.checkpoint_path).save(tmp_path / "agent", seed_index=1))
    group = agent.learner.nets().normalizer
    assert torch.equal(group["mean"], stored["params.normalizer.mean"][1])
    assert torch.equal(group["scale"], stored["params.normalizer.scale"][1])


def test_seeds_together_are_each_alone() -> None:
    check_seeds_together(TD3BC, hidden_sizes=(16, 16), batch_size=8, learning_rate=1e-2)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"bc_alpha": 0.0}, "bc_alpha must be > 0, got 0"),
        ({"policy_delay": 0}, "policy_delay must be >= 1, got 0"),
        ({"dataset_kind": "file"}, "dataset_path must be given when dataset_kind is file"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_td3_bc(**setting)
