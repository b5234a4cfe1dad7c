"""SAC's losses and update against numbers worked out by hand and against torch.distributions."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from seed_harness import filled_replay
from torch import Tensor, nn
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from rl_training.algorithms import SAC, sac_loss
from rl_training.algorithms.sac import SACSettings
from rl_training.models import MLPSACModel
from rl_training.models.parts import squashed_gaussian

METRICS = {"critic_loss", "actor_loss", "target_q_mean", "entropy_term"}


def random_batch(seed: int = 0, size: int = 8) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "obs": torch.randn(size, 3, generator=generator),
        "actions": torch.rand(size, 1, generator=generator) * 2 - 1,
        "rewards": torch.randn(size, generator=generator),
        "next_obs": torch.randn(size, 3, generator=generator),
        "dones": (torch.rand(size, generator=generator) < 0.3).float(),
    }


def make_sac(seed: int = 0, **changes: Any) -> SAC:
    torch.manual_seed(seed)
    model = MLPSACModel(obs_dim=3, action_dim=1, hidden_sizes=(32, 32))
    return SAC(model=model, **{"learning_rate": 3e-4, "gamma": 0.99, "alpha": 0.2, "tau": 0.005, **changes})


HAND_VALUES = {
    "q1_values": torch.tensor([2.0, 3.0]),
    "q2_values": torch.tensor([1.0, 6.0]),
    "target_q_values": torch.tensor([1.0, 4.0]),
    "sampled_logprobs": torch.tensor([-1.0, 3.0]),
    "sampled_q1": torch.tensor([4.0, 3.0]),
    "sampled_q2": torch.tensor([5.0, 1.0]),
}


# --- losses ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape", [(2,), (2, 1)])
@pytest.mark.parametrize("alpha", [0.5, torch.tensor(0.5)])
def test_sac_loss_by_hand(alpha: Any, shape: tuple[int, ...]) -> None:
    """Critics: errors 1, -1 give (1 + 1) / 2 = 1; errors 0, 2 give (0 + 4) / 2 = 2; together 3.

    Entropy term: 0.5 * mean(-1, 3) = 0.5. Actor: 0.5 - mean(min(4, 5), min(3, 1)) = 0.5 - 2.5 = -2.
    """
    values = sac_loss({"alpha": alpha, **{name: value.view(shape) for name, value in HAND_VALUES.items()}})
    expected = {"critic_loss": 3.0, "actor_loss": -2.0, "target_q_mean": 2.5, "entropy_term": 0.5}
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected)


def test_log_density_of_the_squashed_gaussian() -> None:
    torch.manual_seed(0)
    mean, log_std, noise = torch.randn(3, 50, 3, dtype=torch.float64)
    actions, logprobs = squashed_gaussian(mean, log_std, noise)
    theirs = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform()])
    torch.testing.assert_close(actions, (mean + log_std.exp() * noise).tanh())
    torch.testing.assert_close(logprobs, theirs.log_prob(actions).sum(-1), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("pre", [-1000.0, -30.0, -9.0, 9.0, 30.0, 1000.0])
def test_log_density_far_out(pre: float) -> None:
    """With std 1 and noise 0: log N = -log(2 pi) / 2, and 1 - tanh(u)^2 = 4 exp(-2|u|) when |u| is large."""
    mean = torch.tensor([[pre]], requires_grad=True)
    actions, logprobs = squashed_gaussian(mean, torch.zeros(1, 1), torch.zeros(1, 1))
    assert actions.abs().item() == pytest.approx(1.0)
    expected = -0.5 * math.log(2 * math.pi) - (math.log(4) - 2 * abs(pre))
    assert logprobs.item() == pytest.approx(expected, rel=1e-6)
    (slope,) = torch.autograd.grad(logprobs.sum(), mean)
    assert slope.item() == pytest.approx(math.copysign(2.0, pre), abs=1e-4)


# --- one update --------------------------------------------------------------------------------------------------
class FixedPolicy(nn.Module):
    """The action tanh(m) * obs / 3, with log-density `logprob`, whatever the noise."""

    def __init__(self, m: float, logprob: float) -> None:
        super().__init__()
        self.m, self.logprob = nn.Parameter(torch.tensor(m)), nn.Parameter(torch.tensor(logprob))

    def forward(self, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.m.tanh() * obs / 3, self.logprob.expand(obs.shape[0])


class LinearCritics(nn.Module):
    """Q_i = w_i * action + v_i * obs."""

    def __init__(self, w: list[float], v: list[float]) -> None:
        super().__init__()
        self.w, self.v = nn.Parameter(torch.tensor(w)), nn.Parameter(torch.tensor(v))

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.w[:, None] * actions[:, 0] + self.v[:, None] * obs[:, 0]


class HandModel(nn.Module):
    action_dim = 1

    def __init__(self, m: float = math.atanh(0.5), logprob: float = 2.0) -> None:
        super().__init__()
        self.actor, self.critic = FixedPolicy(m, logprob), LinearCritics([1.0, 3.0], [2.0, 2.0])


def hand_learner(**settings: Any) -> SAC:
    learner = SAC(model=HandModel(), **{"learning_rate": 1e-9, "gamma": 0.5, "alpha": 0.1, "tau": 0.0, **settings})
    target = learner.engine.groups()["target_critic"]
    target["w"].copy_(torch.tensor([[10.0, 20.0]]))
    target["v"].copy_(torch.tensor([[100.0, 7.0]]))
    return learner


def hand_batch(dones: float = 0.0) -> dict[str, Tensor]:
    return {
        "obs": torch.tensor([[1.0]]),
        "actions": torch.tensor([[-1.0]]),
        "rewards": torch.tensor([4.0]),
        "next_obs": torch.tensor([[3.0]]),
        "dones": torch.tensor([dones]),
    }


def test_the_target_takes_the_current_policy_and_the_target_critics() -> None:
    """The policy acts 0.5 at s' = 3. Target critics: 10 * 0.5 + 300 = 305 and 20 * 0.5 + 21 = 31; the smaller is 31.

    Target: 4 + 0.5 * (31 - 0.1 * 2) = 19.4. With the online critics it would be 4 + 0.5 * (6.5 - 0.2) = 7.15, with the
    action of s = 1, which is 1/6, it would be 16.07, with the other critic 156.4, with the wrong sign 19.6.
    Critic loss: online Q(1, -1) = -1 + 2 = 1 and -3 + 2 = -1: 18.4^2 + 20.4^2 = 338.56 + 416.16.
    Actor, at s = 1: 0.1 * 2 - min(1/6 + 2, 3/6 + 2) = 0.2 - 13/6, by the online critics.
    """
    metrics = hand_learner().update(hand_batch()).metrics
    assert metrics["target_q_mean"] == pytest.approx(19.4)
    assert metrics["critic_loss"] == pytest.approx(338.56 + 416.16)
    assert metrics["actor_loss"] == pytest.approx(0.2 - 13 / 6, abs=1e-5)
    assert metrics["entropy_term"] == pytest.approx(0.2)


def test_nothing_lies_behind_a_terminal_state() -> None:
    assert hand_learner().update(hand_batch(dones=1.0)).metrics["target_q_mean"] == pytest.approx(4.0)


def test_the_actor_climbs_the_smaller_critic_and_the_critics_stay() -> None:
    """d(loss)/dm = -w_1 * (1 - 0.5^2) / 3 = -0.25 and d(loss)/d(logprob) = alpha; Adam's mean is a tenth of it."""
    learner = hand_learner()
    learner.update(hand_batch())
    mean = learner.engine.layouts["actor"].views(learner.engine.slots["adam_mean"]["actor"])
    assert mean["m"].item() == pytest.approx(-0.025, rel=1e-5)
    assert mean["logprob"].item() == pytest.approx(0.01, rel=1e-5)
    # critics: 2 * error * (action, obs) only from the critic's loss: errors -18.4 and -20.4, action -1
    critic = learner.engine.layouts["critic"].views(learner.engine.slots["adam_mean"]["critic"])
    assert critic["w"][0].tolist() == pytest.approx([3.68, 4.08], rel=1e-5)


@pytest.mark.parametrize(("logprob", "direction"), [(2.0, 1), (0.5, -1)])
def test_the_temperature_moves_towards_the_target_entropy(logprob: float, direction: int) -> None:
    """d/d(log_alpha) of -log_alpha * (logprob + target) is -(logprob + target); the target is -1, minus the dimensions.

    Entropy -2 is below -1: gradient -1, the temperature rises. Entropy -0.5 is above: gradient 0.5, it falls.
    """
    model = HandModel(logprob=logprob)
    learner = SAC(model=model, learning_rate=0.01, gamma=0.5, alpha="auto", initial_alpha=0.5, tau=0.0)
    assert learner.alpha == pytest.approx(0.5)
    metrics = learner.update(hand_batch()).metrics
    assert metrics["ent_coef"] == pytest.approx(0.5), "the actor's loss uses the temperature before its step"
    assert learner.engine.slots["adam_mean"]["temperature"][0].item() == pytest.approx(-0.1 * (logprob - 1), rel=1e-5)
    assert learner.alpha == pytest.approx(0.5 * math.exp(direction * 0.01), rel=1e-5)


def test_a_given_target_entropy_is_used() -> None:
    learner = SAC(model=HandModel(), learning_rate=0.01, gamma=0.5, alpha="auto", target_entropy=-3.5, tau=0.0)
    learner.update(hand_batch())
    assert learner.engine.slots["adam_mean"]["temperature"][0].item() == pytest.approx(-0.1 * (2.0 - 3.5), rel=1e-5)


def test_a_fixed_temperature_stays_and_zero_means_no_entropy() -> None:
    learner = hand_learner(alpha=0.0, learning_rate=0.1)
    metrics = learner.update(hand_batch()).metrics
    assert metrics["target_q_mean"] == pytest.approx(4 + 0.5 * 31)
    assert metrics["entropy_term"] == 0.0
    assert learner.alpha == 0.0
    assert learner.nonfinite_updates() == [-1]


def test_the_target_critics_follow_by_tau() -> None:
    """w: target 10, online 1 (it does not move at rate 1e-9): 10 + 0.25 * (1 - 10) = 7.75."""
    learner = hand_learner(tau=0.25)
    learner.update(hand_batch())
    followed = learner.engine.groups()["target_critic"]["w"][0].tolist()
    assert followed == pytest.approx([7.75, 20 + 0.25 * (3 - 20)], rel=1e-6)


def test_update_stand_alone() -> None:
    learner = make_sac()
    result = learner.update(random_batch(), global_step=8)
    assert result.num_gradient_steps == 1
    assert learner.update_count == 1
    assert set(result.metrics) >= METRICS
    assert all(math.isfinite(value) for value in result.metrics.values())
    before = result.metrics["critic_loss"]
    for step in range(200):
        result = learner.update({**random_batch(), "dones": torch.ones(8)}, global_step=step)
    assert result.metrics["critic_loss"] < 0.5 * before


def test_numpy_batches_and_boolean_dones_give_the_same_update() -> None:
    learners = make_sac(), make_sac()
    batch = random_batch()
    learners[0].update(batch)
    learners[1].update(
        {**{name: value.numpy() for name, value in batch.items()}, "dones": batch["dones"].bool().numpy()}
    )
    assert torch.equal(learners[0].engine.flat["critic"], learners[1].engine.flat["critic"])


def test_few_frames_lie_between_training_and_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """What someone who debugs a loss has to step through."""
    frames: list[str] = []

    def critic_loss(self: SAC, *rest: Any) -> Any:
        if not frames:
            stack = [frame for frame in inspect.stack()[1:] if "rl_training" in frame.filename]
            names = [frame.function for frame in stack]
            frames.extend(names[: names.index("train", names.index("train") + 1)])  # Training.train, Learner.train
        return original(self, *rest)

    original = SAC.critic_loss
    learner, replay = make_sac(batch_size=4), filled_replay("sac", 1)
    learner.train(replay, 1, 1)  # the first update also looks for the names of metrics
    monkeypatch.setattr(SAC, "critic_loss", critic_loss)
    learner.train(replay, 1, 2)
    assert len(frames) <= 5, frames


# --- state -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("alpha", [0.2, "auto"])
def test_a_fresh_learner_resumes_from_the_state_with_the_same_bits(alpha: Any) -> None:
    first, second = make_sac(0, alpha=alpha), make_sac(1, alpha=alpha)
    for step in range(4):
        first.update(random_batch(step), global_step=step)
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    assert (second.update_count, second.alpha) == (4, first.alpha)
    for step in range(4, 8):
        for learner in (first, second):
            learner.update(random_batch(step), global_step=step)
    states = first.state_dict(), second.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_fixed_temperature_in_the_state_wins() -> None:
    saved, loaded = make_sac(alpha=0.2), make_sac(alpha=0.7)
    loaded.load_state_dict(saved.state_dict())
    assert loaded.alpha == pytest.approx(0.2)
    assert loaded.update(random_batch()).metrics == pytest.approx(dict(saved.update(random_batch()).metrics))


def test_the_models_parameters_are_the_learners() -> None:
    learner = make_sac(learning_rate=0.1)
    before = learner.model.actor.net.layers[0].weight.clone()
    learner.update(random_batch())
    assert (learner.model.actor.net.layers[0].weight - before).abs().max().item() == pytest.approx(0.1, rel=0.01)


# --- model and settings ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hidden_sizes", [(), (8,), [8, 8]])
def test_one_observation_is_a_batch_of_one(hidden_sizes: Any) -> None:
    torch.manual_seed(0)
    model = MLPSACModel(obs_dim=3, action_dim=2, hidden_sizes=hidden_sizes)
    obs, actions = torch.randn(4, 3), torch.rand(4, 2) * 2 - 1
    single, batch = model.sample_actions(obs[1], deterministic=True), model.sample_actions(obs, deterministic=True)
    torch.testing.assert_close(single.actions, batch.actions[1:2])
    q1, q2 = model.q_values(obs[1], actions[1])
    torch.testing.assert_close(torch.cat([q1, q2]), torch.stack(model.q_values(obs, actions))[:, 1])
    assert model.sample_actions(obs[1]).actions.shape == (1, 2)
    sampled = model.sample_actions(obs)
    assert sampled.actions.abs().max() <= 1
    assert sampled.logprobs.shape == (4,)


def test_any_number_of_critics() -> None:
    torch.manual_seed(0)
    model = MLPSACModel(obs_dim=3, action_dim=1, hidden_sizes=(8,), num_critics=5)
    obs, actions = torch.randn(4, 3), torch.zeros(4, 1)
    values = model.q_values(obs, actions)
    assert values.shape == (4, 5)
    torch.testing.assert_close(values, model.critic(obs, actions).T)
    learner = SAC(model=model, learning_rate=3e-4, gamma=0.99, alpha=0.2, tau=0.005)
    noise = {name: torch.zeros(8, 1) for name in ("action", "next_action")}
    batch = random_batch()
    with torch.no_grad():
        loss = learner.critic_loss(learner.nets(), {**batch, "dones": torch.ones(8)}, noise).loss
        # all transitions end: the target is the reward for each of the five
        by_hand = (model.q_values(batch["obs"], batch["actions"]) - batch["rewards"][:, None]).square().mean(0).sum()
    assert loss.item() == pytest.approx(by_hand.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": -0.1}, "gamma must be in [0, 1]"),
        ({"tau": 1.5}, "tau must be in [0, 1]"),
        ({"alpha": -0.1}, "alpha must be >= 0"),
        ({"alpha": "automatic"}, "alpha must be "),
        ({"num_critics": 0}, "num_critics must be >= 1"),
        ({"batch_size": 65, "buffer_capacity": 64}, "batch_size must be <= buffer_capacity (64)"),
        ({"max_grad_norm": 0.0}, "max_grad_norm must be > 0"),
    ],
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        SACSettings(**settings)
    assert str(refused.value).startswith(message)
    if "batch_size" not in settings:
        with pytest.raises(ValueError, match="must be"):
            make_sac(**settings)


def test_samples_are_drawn_on_the_device_of_the_model() -> None:
    model = MLPSACModel(3, 2, (4,)).to("meta")
    assert model.sample_actions(torch.zeros(5, 3, device="meta")).actions.device.type == "meta"
