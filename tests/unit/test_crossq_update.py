"""CrossQ's losses and update against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import CrossQ, crossq_loss
from rl_training.algorithms.crossq import CrossQSettings
from rl_training.config.network import LayerChanges, NetworkSettings
from rl_training.models import MLPCrossQModel
from rl_training.models.normalization import BatchRenorm, StackedBatchNorm

METRICS = {"critic_loss", "actor_loss", "target_q_mean", "entropy_term", "ent_coef", "entropy"}


class FixedPolicy(nn.Module):
    """The action m, with log-density 2, whatever the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.tensor(0.5))

    def forward(self, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.m.expand(len(obs), 1), torch.full((len(obs),), 2.0)


class NormalCritic(nn.Module):
    """Two critics: w times the normalised action."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = StackedBatchNorm(1, 1, momentum=0.5, eps=0.0)
        self.w = nn.Parameter(torch.tensor([[4.0], [8.0]]))

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.w * self.norm(actions.unsqueeze(0))[0].T


class HandModel(nn.Module):
    action_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = FixedPolicy(), NormalCritic()


def batch(dones: float) -> dict[str, Tensor]:
    obs = torch.zeros(2, 1)
    actions = torch.tensor([[0.5], [-1.5]])
    return {"obs": obs, "actions": actions, "rewards": torch.ones(2), "next_obs": obs, "dones": torch.full((2,), dones)}


def test_an_update_by_hand() -> None:
    """Actions 0.5, -1.5 and, next, 0.5 twice: mean 0, variance 3/4; normalised 1, -3, 1, 1 times 1/sqrt(3).

    The smaller next value is 4/sqrt(3); less the entropy 0.25 * 2 and with gamma 0.5 the target is
    1 + 0.5 * (4/sqrt(3) - 0.5). Each critic's error: the mean of (w/sqrt(3) - target)^2 and (-3w/sqrt(3) - target)^2.
    The policy's action 0.5 has, by the running statistics (mean 0, variance 0.5 * 1 + 0.5 * 3/4 * 4/3 = 1), the value
    4 * 0.5 = 2; its loss is 0.5 - 2.
    """
    learner = CrossQ(model=HandModel(), learning_rate=1e-9, gamma=0.5, alpha=0.25)
    metrics = learner.update(batch(0.0)).metrics
    root = math.sqrt(3)
    target = 1 + 0.5 * (4 / root - 0.5)
    critic_loss = sum(0.5 * ((w / root - target) ** 2 + (-3 * w / root - target) ** 2) for w in (4, 8))
    expected = {"target_q_mean": target, "critic_loss": critic_loss, "actor_loss": -1.5, "entropy_term": 0.5}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    assert not any(name.startswith("params.target") for name in learner.state_dict()), "there are no target networks"
    metrics = learner.update(batch(1.0)).metrics
    assert metrics["target_q_mean"] == pytest.approx(1.0), "nothing is behind a terminal state"


def test_the_joined_batch_is_one_pass_and_the_policy_leaves_the_statistics() -> None:
    learner = CrossQ(model=MLPCrossQModel(3, 2, (8,), critic_hidden_sizes=(8,)), policy_delay=3, batch_size=4)
    noise = learner.engine.host_noise(learner.update_noise(4))
    rows = learner.example_batch(4)
    passes = []
    for _ in range(6):
        learner.engine.update(rows, noise)
        state = learner.state_dict()
        names = ("buffers.critic.net.norms.0.passes", "buffers.actor.net.norms.0.passes")
        passes.append(tuple(state[name].flatten()[0].item() for name in names))
    assert passes == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 2)], "the policy learns at every third update"


def test_crossq_loss_is_sacs() -> None:
    values = {name: torch.tensor([one]) for name, one in (("q1_values", 1.0), ("q2_values", 2.0))}
    values |= {"target_q_values": torch.tensor([3.0]), "sampled_logprobs": torch.tensor([2.0]), "alpha": 0.5}
    values |= {"sampled_q1": torch.tensor([4.0]), "sampled_q2": torch.tensor([5.0])}
    found = {name: one.item() for name, one in crossq_loss(values).items()}
    expected = {"critic_loss": 5.0, "actor_loss": -3.0, "target_q_mean": 3.0, "entropy_term": 1.0}
    assert found == pytest.approx(expected)


def test_networks_have_beta_a_half_and_the_temperature_adams() -> None:
    """After two equal gradients g, Adam's mean is (1 - beta^2) g: 0.75 and 0.19 of it."""
    learner = CrossQ(model=HandModel(), learning_rate=1e-9, policy_delay=1)
    betas = {phase.name: phase.optimizer.betas for phase in learner.engine.phases}
    assert betas == {"critic": (0.5, 0.999), "policy": (0.5, 0.999), "temperature": (0.9, 0.999)}
    gradient = -(2.0 - 1.0)  # of log_alpha: minus (log-density + target entropy)
    for _ in range(2):
        learner.update(batch(0.0))
    state = learner.state_dict()
    assert state["adam_mean.temperature.log_alpha"].item() == pytest.approx((1 - 0.9**2) * gradient)
    assert "ent_coef_loss" in learner.engine.metrics.newest()


def test_update_stand_alone() -> None:
    torch.manual_seed(0)
    learner = CrossQ(model=MLPCrossQModel(obs_dim=3, action_dim=2, hidden_sizes=(16,)), learning_rate=1e-3, gamma=0.99)
    rows = {
        "obs": torch.randn(8, 3),
        "actions": torch.rand(8, 2) * 2 - 1,
        "rewards": torch.randn(8),
        "next_obs": torch.randn(8, 3),
        "dones": torch.ones(8),
    }
    result = learner.update(rows, global_step=8)
    assert (result.num_gradient_steps, learner.update_count) == (1, 1)
    assert set(result.metrics) >= METRICS and all(math.isfinite(value) for value in result.metrics.values())
    first = result.metrics["critic_loss"]
    for step in range(200):
        result = learner.update(rows, global_step=step)
    assert result.metrics["critic_loss"] < 0.5 * first
    with pytest.raises(ValueError, match="batch_size must be >= 2 with batch normalisation, got 1"):
        learner.update({name: one[:1] for name, one in rows.items()})


# --- model and settings ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hidden_sizes", [(), (8,), [8, 8]])
def test_one_observation_is_a_batch_of_one(hidden_sizes: Any) -> None:
    model = MLPCrossQModel(obs_dim=3, action_dim=2, hidden_sizes=hidden_sizes).eval()
    obs, actions = torch.randn(5, 3), torch.rand(5, 2) * 2 - 1
    first, second = model.q_values(obs, actions)
    assert first.shape == second.shape == (5,)
    torch.testing.assert_close(model.q_values(obs[1], actions[1])[0], first[1:2])
    assert model.sample_actions(obs[1]).actions.shape == (1, 2)
    norms = [one for one in model.critic.modules() if isinstance(one, BatchRenorm)]
    assert [one.weight.shape[-1] for one in norms] == [5, *hidden_sizes], "the inputs are normalised too"


def test_another_kind_of_network_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"^network.kind must be mlp for this algorithm, got 'simba'$"):
        CrossQSettings(network=NetworkSettings(kind="simba"))
    with pytest.raises(ValueError, match=r"^network.critic.kind must be mlp for this algorithm, got 'simba'$"):
        CrossQSettings(network=NetworkSettings(critic=LayerChanges(kind="simba")))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 1}, "batch_size must be >= 2, got 1"),
        ({"policy_delay": 0}, "policy_delay must be >= 1"),
        ({"batch_norm_momentum": 0.0}, "batch_norm_momentum must be in (0, 1]"),
        ({"renorm_warmup": -1}, "renorm_warmup must be >= 0"),
        ({"critic_hidden_sizes": [0]}, "critic_hidden_sizes must be sizes >= 1"),
    ],
)
def test_rejected_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as rejected:
        CrossQSettings(**settings)
    assert str(rejected.value).startswith(message)


def test_there_is_no_tau() -> None:
    with pytest.raises(TypeError, match="tau"):
        CrossQSettings(tau=0.5)  # type: ignore[call-arg]
