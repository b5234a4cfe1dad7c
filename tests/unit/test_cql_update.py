"""CQL's penalty, target, multiplier and warm-up against numbers worked out by hand; the rest is SAC's."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from harness import check_seeds_together
from test_sac_update import HAND_VALUES, FixedPolicy, hand_batch, random_batch
from test_sac_update import HandModel as SACHandModel
from torch import Tensor
from torch.distributions import Normal, TanhTransform, TransformedDistribution

from rl_training.algorithms import CQL, SAC, cql, cql_loss
from rl_training.algorithms.cql import conservative_gap
from rl_training.engine.gradients import entry
from rl_training.models import MLPSACModel
from rl_training.models.parts import GaussianActor

METRICS = {"critic_loss", "actor_loss", "target_q_mean", "entropy_term", "cql_penalty"}


def make_cql(seed: int = 0, **changes: Any) -> CQL:
    torch.manual_seed(seed)
    keywords = {
        "learning_rate": 3e-4,
        "gamma": 0.99,
        "alpha": 0.2,
        "tau": 0.005,
        "cql_alpha": 1.0,
        "num_cql_samples": 4,
    }
    return CQL(model=MLPSACModel(obs_dim=3, action_dim=1, hidden_sizes=(32, 32)), **{**keywords, **changes})


class ManyActions(FixedPolicy):
    """The same action and density for every sample that the noise asks for."""

    def forward(self, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        action, logprob = super().forward(obs, noise)
        assert noise is not None
        return action.expand(noise.shape), logprob.expand(noise.shape[:-1])


class HandModel(SACHandModel):
    def __init__(self) -> None:
        super().__init__()
        self.actor = ManyActions(math.atanh(0.5), 2.0)


def hand_learner(**settings: Any) -> CQL:
    """The policy acts obs / 6 with log-density 2, whatever the noise; Q = (a + 2 s, 3 a + 2 s); see SAC's tests."""
    keywords = {"learning_rate": 1e-9, "gamma": 0.5, "alpha": 0.1, "tau": 0.0, "cql_alpha": 5.0, "num_cql_samples": 1}
    learner = CQL(model=HandModel(), actor_learning_rate=None, **{**keywords, **settings})
    target = learner.engine.groups()["target_critic"]
    target["w"].copy_(torch.tensor([[10.0, 20.0]]))
    target["v"].copy_(torch.tensor([[100.0, 7.0]]))
    return learner


def fixed_noise(learner: CQL, uniform: float) -> dict[str, Tensor]:
    noise = {name: torch.zeros(1, *spec.shape) for name, spec in learner.noise(1).items()}
    noise["uniform"].fill_(uniform)
    return noise


def update(learner: CQL, uniform: float = 0.75, dones: float = 0.0) -> Any:
    batch = {name: tensor.unsqueeze(0) for name, tensor in hand_batch(dones).items()}
    learner.engine.update(batch, fixed_noise(learner, uniform))
    return learner.engine.metrics.newest()


# --- losses ------------------------------------------------------------------------------------------------------
def test_cql_loss_by_hand() -> None:
    """SAC's part is worked out in its own test: critics 3, actor -2. The penalty is 10 * (0.3 + 0.5) = 8."""
    values = {
        **HAND_VALUES,
        "alpha": 0.5,
        "cql_penalty_q1": torch.tensor(0.3),
        "cql_penalty_q2": torch.tensor([0.4, 0.6]),
        "cql_alpha": 10.0,
    }
    expected = {"critic_loss": 11.0, "actor_loss": -2.0, "target_q_mean": 2.5, "entropy_term": 0.5, "cql_penalty": 8.0}
    assert {name: value.item() for name, value in cql_loss(values).items()} == pytest.approx(expected)


def test_the_gap_by_hand() -> None:
    """log(e^0 + e^0) - 1 = log 2 - 1 and log(e^1 + e^2) - 3; a temperature of 2 gives 2 log(e^0.5 + e^1) for these."""
    samples, data = torch.tensor([[[0.0, 1.0], [0.0, 2.0]]]), torch.tensor([[1.0, 3.0]])
    first, second = math.log(2) - 1, math.log(math.e + math.e**2) - 3
    assert conservative_gap(samples, data, 1.0).tolist() == pytest.approx([(first + second) / 2])
    warm = [2 * math.log(2) - 1, 2 * math.log(math.exp(0.5) + math.e) - 3]
    assert conservative_gap(samples, data, 2.0).tolist() == pytest.approx([sum(warm) / 2])


def test_the_gap_of_a_flat_critic_is_the_logarithm_of_the_volume_of_actions() -> None:
    """Importance weights: the mean over uniform actions of exp(Q - log density) integrates exp(Q) over [-1, 1]^d. With
    Q = 0 and two dimensions that is 4 for every sample, and 30 samples give log(30 * 4)."""
    flat = torch.zeros(1, 30, 5) + 2 * math.log(2)
    assert conservative_gap(flat, torch.zeros(1, 5), 1.0).tolist() == pytest.approx([math.log(120)])


# --- one update --------------------------------------------------------------------------------------------------
def gaps(uniform_action: float) -> tuple[float, float]:
    """At s = 1 the critics say a + 2 and 3 a + 2 of the uniform action (less log 1/2), of the policy's 1/6 and of 1/2,
    which is what it does at s' = 3 (less 2 each); the recorded action -1 has 1 and -1."""
    found = []
    for w, data in ((1, 1), (3, -1)):
        terms = [w * uniform_action + 2 + math.log(2), w / 6 + 2 - 2, w / 2 + 2 - 2]
        found.append(math.log(sum(map(math.exp, terms))) - data)
    return found[0], found[1]


def test_the_penalty_weighs_every_sample_by_its_density() -> None:
    metrics = update(hand_learner())  # 0.75 of the way from -1 to 1 is 0.5
    first, second = gaps(0.5)
    assert metrics["cql_penalty"] == pytest.approx(5 * (first + second), rel=1e-5)
    # The authors' target has no entropy: 4 + 0.5 * 31. The critics say 1 and -1 of the recorded action.
    assert metrics["target_q_mean"] == pytest.approx(19.5)
    assert metrics["critic_loss"] == pytest.approx(18.5**2 + 20.5**2 + 5 * (first + second), rel=1e-5)


def test_with_backup_entropy_the_target_is_sacs() -> None:
    assert update(hand_learner(backup_entropy=True))["target_q_mean"] == pytest.approx(19.4)
    assert update(hand_learner(), dones=1.0)["target_q_mean"] == pytest.approx(4.0)


def test_the_best_next_action_is_found_for_each_critic_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Critic 1 says 0 and 10 of two actions, critic 2 says 8 and 2: their best are 10 and 8, the smaller is 8.
    The other way round, the smaller of each action first, it would be 2."""
    learner = hand_learner(max_backup=True)
    noise = {name: tensor[0] for name, tensor in fixed_noise(learner, 0.5).items()}
    with monkeypatch.context() as patch:
        patch.setattr(cql, "values_of", lambda *_: torch.tensor([[[0.0], [10.0]], [[8.0], [2.0]]]))
        assert learner.next_state_value(learner.nets(), hand_batch(), noise).tolist() == [8.0]
    assert update(hand_learner(max_backup=True))["target_q_mean"] == pytest.approx(
        19.5
    )  # one sample: the same as before


def test_several_actions_are_valued_in_their_own_rows() -> None:
    learner = make_cql()
    obs, actions = torch.randn(5, 3), torch.rand(4, 5, 1)
    found = cql.values_of(learner.nets().critic, obs, actions)
    for sample in range(4):
        for row in range(5):
            pair = torch.stack(learner.model.q_values(obs[row], actions[sample, row]))[:, 0]
            torch.testing.assert_close(found[:, sample, row], pair)


def test_a_tuned_multiplier_grows_while_the_gap_is_too_wide() -> None:
    first, second = (5 * gap for gap in gaps(0.5))
    learner = hand_learner(lagrange_threshold=3.0, learning_rate=0.1)
    metrics = update(learner)
    assert metrics["cql_multiplier"] == 1.0
    assert metrics["critic_loss"] == pytest.approx(18.5**2 + 20.5**2 + first + second - 6, rel=1e-5)
    assert float(learner.engine.groups()["multiplier"]["log"][0]) == pytest.approx(0.1)  # Adam's first step
    narrow = hand_learner(lagrange_threshold=100.0, learning_rate=0.1)
    update(narrow)
    assert float(narrow.engine.groups()["multiplier"]["log"][0]) == pytest.approx(-0.1)


def test_the_multiplier_does_not_change_the_critics_gradient() -> None:
    """A multiplier of 1 and no threshold to speak of: the critics move as without one."""
    with_it, without = hand_learner(lagrange_threshold=1e-9, learning_rate=0.1), hand_learner(learning_rate=0.1)
    update(with_it), update(without)
    for name, tensor in without.engine.groups()["critic"].items():
        assert torch.equal(tensor, with_it.engine.groups()["critic"][name])


def test_at_first_the_actor_is_cloned_from_the_data() -> None:
    learner = make_cql(bc_updates=2)
    for step in range(4):
        batch = random_batch(step)
        before = {name: tensor[0].clone() for name, tensor in learner.engine.groups()["actor"].items()}
        noise = entry(learner.engine.host_noise(learner.noise(len(batch["rewards"]))), 0)
        metrics = learner.update(batch).metrics
        groups = {**learner.nets().groups, "actor": before}  # the policy's turn: the critics have moved
        nets = learner.binding.networks_of(groups)
        _, logprobs = nets.actor(batch["obs"], None, batch["actions"])
        cloned = metrics["entropy_term"] - logprobs.mean().item()
        plain = SAC.policy_loss(learner, nets, batch, noise).metrics
        assert metrics["actor_loss"] == pytest.approx(cloned if step < 2 else plain["actor_loss"].item(), rel=1e-4)
        assert plain["actor_loss"].item() != pytest.approx(cloned, rel=1e-2)


def test_the_density_of_recorded_actions_is_the_squashed_gaussians() -> None:
    torch.manual_seed(0)
    actor, obs, actions = GaussianActor(3, 2, (8,)), torch.randn(40, 3), torch.rand(40, 2) * 1.98 - 0.99
    mean, log_std = actor.net(obs).squeeze(0).chunk(2, -1)
    theirs = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform()]).log_prob(actions).sum(-1)
    torch.testing.assert_close(actor(obs, None, actions)[1], theirs, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(actor(obs, None, torch.ones(40, 2))[1]).all()  # at the bounds


def test_a_penalty_that_weighs_nothing_leaves_sac() -> None:
    """With a tiny weight and SAC's target the critics follow SAC's, within rounding."""
    cql = make_cql(cql_alpha=1e-12, backup_entropy=True, actor_learning_rate=None, hidden_sizes=(32, 32))
    torch.manual_seed(0)
    sac = SAC(model=MLPSACModel(3, 1, (32, 32)), learning_rate=3e-4, gamma=0.99, alpha=0.2, tau=0.005)
    for learner in (cql, sac):
        noise = {"next_action": torch.zeros(1, 8, 1), "action": torch.ones(1, 8, 1)}
        noise |= {name: torch.zeros(1, *spec.shape) for name, spec in learner.noise(8).items() if name not in noise}
        for step in range(5):
            learner.engine.update({name: tensor.unsqueeze(0) for name, tensor in random_batch(step).items()}, noise)
    for group, params in sac.engine.groups().items():
        for name, tensor in params.items():
            torch.testing.assert_close(cql.engine.groups()[group][name], tensor, atol=1e-5, rtol=1e-4)


def test_the_actor_has_its_own_rate() -> None:
    learner = make_cql(actor_learning_rate=3e-5)
    assert learner.engine.rate_values == pytest.approx({"critic": 3e-4, "policy": 3e-5})
    linear = make_cql(actor_learning_rate=3e-5, learning_rate_schedule="linear")
    linear.set_progress(0.5)
    assert linear.engine.rate_values == pytest.approx({"critic": 1.5e-4, "policy": 1.5e-5})


@pytest.mark.parametrize(
    "changes", [{}, {"max_backup": True, "lagrange_threshold": 5.0, "bc_updates": 3, "alpha": "auto"}]
)
def test_update_returns_every_metric_at_once_and_state_round_trips(changes: dict[str, Any]) -> None:
    learner = make_cql(**changes)
    result = learner.update(random_batch(), global_step=0)
    assert result.num_gradient_steps == 1 and set(result.metrics) >= METRICS and learner.update_count == 1
    assert all(math.isfinite(value) for value in result.metrics.values())
    other = make_cql(seed=9, **changes)
    other.load_state_dict({name: tensor.clone() for name, tensor in learner.state_dict().items()})
    for one in (learner, other):
        one.update(random_batch(1))
    for name, tensor in learner.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_seeds_together_are_each_alone() -> None:
    check_seeds_together(CQL, hidden_sizes=(16, 16), batch_size=8, num_cql_samples=3, learning_rate=1e-2, bc_updates=5)
    check_seeds_together(
        CQL,
        hidden_sizes=(16,),
        batch_size=8,
        num_cql_samples=3,
        learning_rate=1e-2,
        max_backup=True,
        lagrange_threshold=1.0,
    )


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"cql_alpha": 0.0}, "cql_alpha must be > 0, got 0"),
        ({"cql_alpha": -1.0}, "cql_alpha must be > 0, got -1"),
        ({"num_cql_samples": 0}, "num_cql_samples must be >= 1 and <= 1000, got 0"),
        ({"num_cql_samples": 1001}, "num_cql_samples must be >= 1 and <= 1000, got 1001"),
        ({"backup_entropy": True, "max_backup": True}, "backup_entropy must be false where max_backup is true"),
        ({"cql_temperature": 0.0}, "cql_temperature must be > 0, got 0"),
        ({"lagrange_threshold": 0.0}, "lagrange_threshold must be > 0 or null, got 0"),
        ({"bc_updates": -1}, "bc_updates must be >= 0, got -1"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_cql(**setting)
