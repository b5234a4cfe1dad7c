"""FlashSAC's losses, projections and update against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import FlashSAC, flashsac_loss
from rl_training.algorithms.flashsac import FlashSACSettings
from rl_training.models import MLPFlashSACModel
from rl_training.models.normalization import StackedBatchNorm, UnitBatchNorm, UnitLinear, UnitRMSNorm

METRICS = {"critic_loss", "actor_loss", "target_q_mean", "entropy_term", "ent_coef", "entropy"}
HIGH, LOW = (0.2, 0.3, 0.5), (0.5, 0.25, 0.25)  # distributions over -1, 0 and 1 with the means 0.3 and -0.25


class FixedPolicy(nn.Module):
    """The action m, with log-density 2, whatever the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.tensor(0.5))

    def forward(self, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.m.expand(len(obs), 1), 2.0 + 0.0 * self.m.expand(len(obs))


class FixedCritics(nn.Module):
    """Two critics: the same distribution for every row."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([HIGH, LOW]).log().unsqueeze(1))

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.logits.expand(2, len(actions), 3)


class HandModel(nn.Module):
    action_dim, obs_dim = 1, 1

    def __init__(self, critic: nn.Module) -> None:
        super().__init__()
        self.actor, self.critic = FixedPolicy(), critic


def rows(reward: float = 0.25, dones: float = 0.0) -> dict[str, Tensor]:
    one = torch.ones(3, 1)
    rewards = torch.full((3,), reward)
    return {"obs": one, "actions": one, "rewards": rewards, "next_obs": one, "dones": torch.full((3,), dones)}


def hand_learner(**changes: Any) -> FlashSAC:
    settings = {"num_atoms": 3, "v_max": 1.0, "gamma": 0.5, "alpha": 0.25, "learning_rate": 1e-9, **changes}
    return FlashSAC(model=HandModel(FixedCritics()), **settings)


def cross_entropy(target: tuple[float, ...]) -> float:
    terms = [-sum(t * math.log(p) for t, p in zip(target, probs, strict=True)) for probs in (HIGH, LOW)]
    return sum(terms) / 2


def test_an_update_by_hand() -> None:
    """The second critic's mean is smaller. Atoms less the entropy 0.25 * 2: -1.5, -0.5, 0.5.

    With gamma 0.5 and the reward 0.25 they are -0.5, 0, 0.5. Their probabilities 1/2, 1/4, 1/4 go by halves to the
    neighbours: 1/4, 1/4 + 1/4 + 1/8, 1/8.
    The actor's value is the smaller mean, -0.25.
    """
    target = (0.25, 0.625, 0.125)
    metrics = hand_learner().update(rows()).metrics
    expected = {"critic_loss": cross_entropy(target), "target_q_mean": -0.125, "actor_loss": 0.75, "entropy_term": 0.5}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    metrics = hand_learner().update(rows(dones=1.0)).metrics
    assert metrics["target_q_mean"] == pytest.approx(0.25), "nothing is behind a terminal state, not even entropy"
    assert metrics["critic_loss"] == pytest.approx(cross_entropy((0.0, 0.75, 0.25)))


def test_rewards_are_scaled_and_returns_end_at_the_last_atom() -> None:
    learner = hand_learner()
    learner.nets().running["reward_scale"].fill_(2.0)
    assert learner.update(rows(dones=1.0)).metrics["target_q_mean"] == pytest.approx(0.5)
    assert learner.update(rows(-7.0, dones=1.0)).metrics["target_q_mean"] == pytest.approx(-1.0)


def test_the_temperature_follows_the_entropy() -> None:
    """The gradient of log alpha: alpha times the entropy, -2, less the target 1/2 log(2 pi e 0.15^2)."""
    learner = hand_learner(alpha="auto", learning_rate=1e-6)
    target = 0.5 * math.log(2 * math.pi * math.e * 0.15**2)
    assert learner.target_entropy == pytest.approx(target)
    learner.update(rows())
    mean = learner.state_dict()["adam_mean.temperature.log_alpha"].item()
    assert mean == pytest.approx(0.1 * 0.01 * (-2 - target), rel=1e-5)
    assert hand_learner(target_entropy=-3.0).target_entropy == -3.0


class NormalCritics(nn.Module):
    """One critic of three atoms: the normalised action is the logit of the last."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = StackedBatchNorm(1, 1, momentum=0.5, eps=0.0)

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        logit = self.norm(actions.unsqueeze(0))
        return torch.cat([torch.zeros_like(logit), torch.zeros_like(logit), logit], -1)


def test_target_critics_normalise_by_the_joined_batch_too() -> None:
    """Actions 0.5, -1.5 and, next, 0.5 twice: mean 0, variance 3/4; the next logit is 1/sqrt(3)."""
    model = HandModel(NormalCritics())
    learner = FlashSAC(model=model, num_atoms=3, v_max=1.0, gamma=0.5, alpha=0.0, learning_rate=1e-9, num_critics=1)
    obs, actions = torch.zeros(2, 1), torch.tensor([[0.5], [-1.5]])
    batch = {"obs": obs, "actions": actions, "rewards": torch.zeros(2), "next_obs": obs, "dones": torch.zeros(2)}
    share = math.exp(3**-0.5)
    value = (share - 1) / (2 + share)  # the mean of the distribution, which halving keeps
    assert learner.update(batch).metrics["target_q_mean"] == pytest.approx(0.5 * value)
    state = learner.state_dict()
    assert state["buffers.critic.norm.running_var"].item() == pytest.approx(1.0)  # 0.5 * 1 + 0.5 * 3/4 * 4/3: one pass
    assert torch.equal(state["buffers.target_critic.norm.running_var"], state["buffers.critic.norm.running_var"])


def test_flashsac_loss_by_hand() -> None:
    values = flashsac_loss(
        {
            "critic_logits": torch.tensor([[HIGH, LOW]]).log(),
            "target_probabilities": torch.tensor([[0.25, 0.625, 0.125]]),
            "atoms": torch.tensor([-1.0, 0.0, 1.0]),
            "sampled_logprobs": torch.tensor([2.0]),
            "sampled_q_values": torch.tensor([-0.25]),
            "alpha": 0.25,
        }
    )
    loss = cross_entropy((0.25, 0.625, 0.125))
    expected = {"critic_loss": loss, "actor_loss": 0.75, "target_q_mean": -0.125, "entropy_term": 0.5}
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected)


# --- projections -------------------------------------------------------------------------------------------------
def test_projections_by_hand() -> None:
    weight = torch.tensor([[[3.0, 0.0], [4.0, 2.0]]])
    found = UnitLinear(1, 2, 2).projected({"weight": weight})["weight"]
    torch.testing.assert_close(found, torch.tensor([[[0.6, 0.0], [0.8, 1.0]]]))
    scales = {"weight": torch.tensor([[[3.0, 0.0]]]), "bias": torch.tensor([[[0.0, 4.0]]])}
    found = UnitBatchNorm(1, 2).projected(scales)  # together of length 5, to be sqrt(2)
    torch.testing.assert_close(found["weight"], torch.tensor([[[3.0, 0.0]]]) * math.sqrt(2) / 5)
    torch.testing.assert_close(found["bias"], torch.tensor([[[0.0, 4.0]]]) * math.sqrt(2) / 5)
    found = UnitRMSNorm(1, 2).projected({"weight": torch.tensor([[[3.0, 4.0]]])})
    torch.testing.assert_close(found["weight"], torch.tensor([[[3.0, 4.0]]]) * math.sqrt(2) / 5)


def test_rms_norm_by_hand() -> None:
    x = torch.tensor([[[3.0, 4.0]]])
    torch.testing.assert_close(UnitRMSNorm(1, 2, eps=0.0)(x), x / math.sqrt(12.5))


def lengths(learner: FlashSAC, group: str) -> list[float]:
    """The largest deviation of each projected layer from its length, over all seeds and members."""
    found, views = [], learner.engine.groups()[group]
    for layer, names in learner.binding.networks["critic"].projected:
        own = {name: views[full] for name, full in names.items()}
        if isinstance(layer, UnitLinear):
            found.append((own["weight"].norm(dim=-2) - 1).abs().max().item())
        else:
            length = sum(one.square().sum(-1) for one in own.values()).sqrt()
            found.append((length - math.sqrt(own["weight"].shape[-1])).abs().max().item())
    return found


def test_norms_hold_at_the_start_and_after_every_step_but_not_in_targets() -> None:
    torch.manual_seed(0)
    model = MLPFlashSACModel(obs_dim=3, action_dim=2, hidden_sizes=(8,), critic_hidden_sizes=(8, 8))
    for parameter in model.parameters():
        parameter.data.mul_(3.0)
    learner = FlashSAC(model=model, learning_rate=0.1)
    assert max(lengths(learner, "critic")) < 1e-5 and max(lengths(learner, "target_critic")) < 1e-5
    assert len(lengths(learner, "critic")) == 1 + 1 + 2 * 4 + 1 + 1  # input, embedder, blocks, RMS norm, output
    torch.testing.assert_close(model.actor.net.output.weight.norm(dim=-2), torch.ones(1, 4))  # it is the same memory
    for _ in range(3):
        learner.update({**random_rows(), "dones": torch.zeros(8)})
    assert max(lengths(learner, "critic")) < 1e-5
    assert max(lengths(learner, "target_critic")) > 1e-4, "the targets are averages, as in the authors' code"


# --- the whole -------------------------------------------------------------------------------------------------------
def random_rows() -> dict[str, Tensor]:
    return {
        "obs": torch.randn(8, 3),
        "actions": torch.rand(8, 2) * 2 - 1,
        "rewards": torch.randn(8),
        "next_obs": torch.randn(8, 3),
        "dones": torch.ones(8),
    }


def test_update_stand_alone() -> None:
    torch.manual_seed(0)
    learner = FlashSAC(model=MLPFlashSACModel(obs_dim=3, action_dim=2, hidden_sizes=(16,)), learning_rate=1e-3)
    batch = random_rows()
    result = learner.update(batch, global_step=8)
    assert (result.num_gradient_steps, learner.update_count) == (1, 1)
    assert set(result.metrics) >= METRICS and all(math.isfinite(value) for value in result.metrics.values())
    first = result.metrics["critic_loss"]
    for step in range(150):
        result = learner.update(batch, global_step=step)
    assert result.metrics["critic_loss"] < 0.5 * first



def test_the_policy_learns_first_and_at_every_second_update() -> None:
    learner = FlashSAC(model=MLPFlashSACModel(3, 2, (4,)))
    assert [learner.engine.due(update) for update in (1, 2, 3, 4)] == [("critic",), ("policy", "critic")] * 2
    assert learner.settings.rate(0.0) == 3e-4 and learner.settings.rate(1.0) == pytest.approx(1.5e-4)


@pytest.mark.parametrize("hidden_sizes", [(), (8,), [8, 8]])
def test_one_observation_is_a_batch_of_one(hidden_sizes: Any) -> None:
    model = MLPFlashSACModel(obs_dim=3, action_dim=2, hidden_sizes=hidden_sizes).eval()
    obs, actions = torch.randn(5, 3), torch.rand(5, 2) * 2 - 1
    first, second = model.q_values(obs, actions)
    assert first.shape == second.shape == (5,) and first.abs().max() <= 5
    torch.testing.assert_close(model.q_values(obs[1], actions[1])[0], first[1:2])
    assert model.sample_actions(obs[1]).actions.shape == (1, 2)
    three = MLPFlashSACModel(obs_dim=3, action_dim=2, hidden_sizes=hidden_sizes, num_critics=3).eval()
    assert three.q_values(obs, actions).shape == (5, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 1}, "batch_size must be >= 2, got 1"),
        ({"hidden_sizes": [8, 9]}, "hidden_sizes must be equal sizes, one for each block, got [8, 9]"),
        ({"critic_hidden_sizes": [8, 9]}, "critic_hidden_sizes must be equal sizes, one for each block"),
        ({"v_max": 0.0}, "v_max must be > 0"),
        ({"noise_steps": 0}, "noise_steps must be"),
        ({"num_atoms": 1}, "num_atoms must be"),
    ],
)
def test_rejected_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as rejected:
        FlashSACSettings(**settings)
    assert str(rejected.value).startswith(message)


def test_spectral_norm_is_one_line() -> None:
    settings = FlashSACSettings(network={"spectral_norm": True})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^network.spectral_norm must be false where weights have length 1$"):
        MLPFlashSACModel(3, 2, settings.actor_layers)
