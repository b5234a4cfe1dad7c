"""PPO's loss and update by hand; the minibatches of an epoch, sequences, and what is decided for each seed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from seed_harness import SEEDS, filled_source, make_learner, random_rows, together_shape
from torch import Tensor

from rl_training.algorithms import PPO, ppo_loss
from rl_training.algorithms.ppo import adapted_rate
from rl_training.algorithms.returns import return_scale
from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec, discrete, vector
from rl_training.data.rollout import Rollout
from rl_training.engine.rollouts import Minibatches
from rl_training.models import ActorCriticModel

LOG_HALF, ENTROPY = math.log(0.5), -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))


def simple(**settings: Any) -> PPO:
    """Probabilities 0.25 and 0.75 and the value 2, whatever the observation."""
    values: dict[str, Any] = {"normalize_advantages": "off", "max_grad_norm": None, **settings}
    learner = PPO(model=ActorCriticModel(1, discrete(2), (), (), shared=False), **values)
    biases = {"actor": torch.tensor([[[0.0, math.log(3)]]]), "critic": torch.tensor([[[2.0]]])}
    for group, bias in biases.items():
        weight = learner.seed_parameters(0)[f"{group}.net.layers.0.weight"]
        name = f"{group}.net.layers.0."
        learner.load_seed_parameters(0, {f"{name}weight": torch.zeros_like(weight), f"{name}bias": bias})
    return learner


def rows(ratios: list[float], advantages: list[float], **more: Any) -> dict[str, Tensor]:
    """Transitions with action 1 whose probability has changed by these ratios since they were collected."""
    count = len(ratios)
    given = {"values": [2.0] * count, "returns": [2.0] * count, "advantages": advantages, **more}
    return {
        "obs": torch.ones(count, 1),
        "actions": torch.ones(count, dtype=torch.int64),
        "logprobs": torch.tensor([math.log(0.75 / ratio) for ratio in ratios]),
        **{name: torch.tensor(values) for name, values in given.items()},
    }


def test_the_clipped_objective_by_hand() -> None:
    """min(ratio * A, clipped * A): 1.2, -0.8, -3 and 1, mean -0.4.

    Divergence: ratio - 1 - log ratio is 0.5 - log 1.5 and -0.5 - log 0.5.
    """
    batch = rows([1.5, 0.5, 1.5, 0.5], [1.0, -1.0, -2.0, 2.0], returns=[3.0, 3.0, 1.0, 1.0])
    found = simple(entropy_weight=0.1).update(batch).metrics
    kl = (0.5 - math.log(1.5) - 0.5 - math.log(0.5)) / 2
    expected = {"policy_loss": 0.4, "clip_fraction": 1.0, "approx_kl": kl, "entropy": ENTROPY, "value_loss": 1.0}
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    assert found["loss"] == pytest.approx(0.4 + 0.5 * 1.0 - 0.1 * ENTROPY, rel=1e-5)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [(1.5, 1.0, False), (1.5, -1.0, True), (0.5, -1.0, False), (0.5, 1.0, True), (1.1, 1.0, True), (0.9, -1.0, True)],
)
def test_a_clipped_objective_has_no_gradient(ratio: float, advantage: float, moves: bool) -> None:
    learner = simple(learning_rate=0.1)
    before = learner.seed_parameters(0)["actor.net.layers.0.bias"].clone()
    learner.update(rows([ratio], [advantage]))
    change = (learner.seed_parameters(0)["actor.net.layers.0.bias"] - before).flatten()
    # Adam's first step is the rate: towards action 1 where it was better than expected.
    assert change.tolist() == pytest.approx([-0.1 * advantage, 0.1 * advantage] if moves else [0, 0], abs=1e-4)


def test_values_are_clipped_around_those_of_the_rollout() -> None:
    """Clipped to 1.5, 2, 2 and 3.5, of which the errors are 1.5, 1, 1 and 2.5; unclipped all are 1."""
    batch = rows([1.0] * 4, [0.0] * 4, values=[1.0, 2.0, 2.0, 4.0], returns=[3.0, 3.0, 1.0, 1.0])
    assert simple(value_clip_range=0.5).update(batch).metrics["value_loss"] == pytest.approx(10.5 / 4)
    assert simple().update(batch).metrics["value_loss"] == pytest.approx(1.0)


@pytest.mark.parametrize(("how", "loss"), [("minibatch", 0.1 * math.sqrt(0.5) / 2), ("off", -(1.1 * 1 + 3) / 2)])
def test_advantages_of_a_minibatch_are_standardised(how: str, loss: float) -> None:
    """Advantages 1 and 3 have mean 2 and deviation sqrt 2."""
    found = simple(normalize_advantages=how).update(rows([1.1, 1.0], [1.0, 3.0])).metrics
    assert found["policy_loss"] == pytest.approx(loss, rel=1e-4)


def test_the_loss_of_given_tensors() -> None:
    batch = rows([1.5, 0.5], [1.0, 2.0], returns=[3.0, 1.0])
    given = {name: batch[name] for name in ("advantages", "values", "returns")}
    given |= {"logprobs": torch.full((2,), math.log(0.75)), "old_logprobs": batch["logprobs"]}
    found = ppo_loss({**given, "entropy": torch.tensor([1.0, 3.0])})
    expected = {"policy_loss": -(1.2 + 1.0) / 2, "value_loss": 1.0, "entropy": 2.0, "loss": -1.1 + 0.5}
    assert {name: float(found[name]) for name in expected} == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("rate", "kl", "expected"),
    [(1e-3, 0.03, 1e-3 / 1.5), (1e-3, 0.004, 1.5e-3), (1e-3, 0.01, 1e-3), (1e-3, 0.0, 1.5e-3), (1.2e-5, 1.0, 1e-5),
     (9e-3, 1e-6, 1e-2)],
)  # fmt: skip
def test_a_rate_adapts_to_the_divergence(rate: float, kl: float, expected: float) -> None:
    assert adapted_rate(torch.tensor(rate), torch.tensor(kl), 0.01) == pytest.approx(expected)


# --- rollouts --------------------------------------------------------------------------------------------------------
def values_of(rollout: Rollout, name: str, index: int = 0) -> Tensor:
    return rollout.columns[name][index]


@pytest.mark.parametrize("how", ["batch", "off"])
def test_targets_are_advantages_with_the_values_of_true_successors(how: str) -> None:
    learner = make_learner("ppo", wanted={"normalize_advantages": how, "gamma": 0.9, "gae_lambda": 0.8})
    rollout = filled_source(learner)
    Minibatches(learner.training, rollout, 40, learner.targets).compute_targets()
    nets = learner.nets()
    obs, successors = (values_of(rollout, name) for name in ("obs", "next_obs"))
    values, after = (nets.critic(one.flatten(0, 1)).view(4, 10) for one in (obs, successors))
    ended = values_of(rollout, "terminated") | values_of(rollout, "truncated")
    expected, ahead = torch.zeros(4, 10), torch.zeros(4)
    for step in range(9, -1, -1):
        alive = (~values_of(rollout, "terminated")[:, step]).float()
        error = values_of(rollout, "rewards")[:, step] + 0.9 * alive * after[:, step] - values[:, step]
        ahead = error + 0.9 * 0.8 * (~ended[:, step]).float() * ahead
        expected[:, step] = ahead
    torch.testing.assert_close(values_of(rollout, "values"), values)
    torch.testing.assert_close(values_of(rollout, "returns"), expected + values)
    if how == "batch":
        expected = (expected - expected.mean()) / expected.std()
    torch.testing.assert_close(values_of(rollout, "advantages"), expected)


def test_values_are_multiplied_by_the_deviation_that_divided_their_targets() -> None:
    learner = make_learner("ppo", wanted={"normalize_returns": True, "epochs": 1})
    rollout = filled_source(learner)
    learner.learn(rollout, 0.0, 40)
    running = learner.nets().running
    scale = float((running["return_squares"] / 40).sqrt())
    first = values_of(rollout, "returns").double() * scale
    assert running["return_count"] == 40 and float(running["return_mean"]) == pytest.approx(float(first.mean()))
    assert scale == pytest.approx(float(first.std(correction=0)))
    # The critic has learned divided returns: multiplied by the same deviation, its values are those of rewards.
    Minibatches(learner.training, rollout, 40, learner.targets).compute_targets()
    later = float((learner.nets().running["return_squares"] / 80).sqrt())
    assert later != pytest.approx(scale)
    terminated = values_of(rollout, "terminated")
    after = learner.nets().critic(values_of(rollout, "next_obs").flatten(0, 1)).view(4, 10) * scale
    last = values_of(rollout, "rewards")[:, 9] + 0.99 * (~terminated[:, 9]).float() * after[:, 9]
    torch.testing.assert_close(values_of(rollout, "returns")[:, 9] * later, last, rtol=1e-4, atol=1e-4)


def test_divided_returns_do_not_grow_by_themselves() -> None:
    """An episode of 100 steps in the rollouts of 4 environments, and a critic that learns its targets exactly.

    Values multiplied by another deviation than the one that divided their targets feed each other: after nine rollouts
    of these, a return of -100 was estimated as 400 million.
    """
    learner = simple(normalize_returns=True, gamma=0.999)
    steps = torch.arange(100.0)
    rollout = {
        "obs": steps.view(4, 25, 1),
        "next_obs": (steps + 1).view(4, 25, 1),
        "rewards": torch.where(steps < 99, 0.0, -100.0).view(4, 25),
        "terminated": (steps == 99).view(4, 25),
        "truncated": torch.zeros(4, 25, dtype=torch.bool),
    }
    learned = torch.zeros(101)
    nets: Any = type("Nets", (dict,), {"critic": lambda self, obs: learned[obs.flatten().long()]})()
    nets.running = learner.nets().running
    for _ in range(300):
        found = learner.targets(nets, rollout)
        learned[:100], nets.running = found.columns["returns"].flatten(), found.running
        assert (learned * return_scale(nets.running)).abs().max() < 100.1
    expected = -100 * 0.999 ** (99 - steps)
    torch.testing.assert_close(learned[:100] * return_scale(nets.running), expected, rtol=1e-3, atol=0)


@pytest.mark.parametrize(("batch_size", "minibatches"), [(8, 5), (7, 5), (40, 1), (13, 3)])
def test_an_epoch_uses_every_row_once(batch_size: int, minibatches: int) -> None:
    """Rows that fill no minibatch sit out, others in each epoch; each seed has an order of its own."""
    learner = make_learner("ppo", SEEDS, {"batch_size": batch_size})
    order = Minibatches(learner.training, filled_source(learner), batch_size, learner.targets)
    orders = []
    for update in (0, minibatches):
        learner.engine.update_count = update
        drawn = order._host_order()
        assert drawn.shape == (minibatches, 3, batch_size)
        for seed in range(3):
            used = drawn[:, seed].flatten().tolist()
            assert len(set(used)) == len(used) and set(used) <= set(range(40))
            orders.append(used)
    assert all(a != b for i, a in enumerate(orders) for b in orders[:i])


def test_advantages_are_recomputed_before_every_epoch() -> None:
    calls = []
    for recompute in (False, True):
        learner = make_learner("ppo", wanted={"recompute_advantages": recompute, "epochs": 3})
        rollout, count = filled_source(learner), [0]
        learner._minibatches = Minibatches(learner.training, rollout, 8, learner.targets)
        inner = learner._minibatches.compute_targets

        def counted(inner: Any = inner, count: list[int] = count) -> None:
            count[0] += 1
            inner()

        learner._minibatches.compute_targets = counted
        learner.learn(rollout, 0.0, 40)
        calls.append(count[0])
    assert calls == [1, 3]


# --- each seed for itself --------------------------------------------------------------------------------------------
CONTROLS = {
    "stop": {"target_kl": 0.002},
    "rate": {"learning_rate_kl": 0.01},
    "both": {"target_kl": 0.002, "learning_rate_kl": 0.001},
}


@pytest.mark.parametrize("control", CONTROLS)
def test_what_is_decided_for_a_seed_changes_no_other(control: str) -> None:
    """Parameters, moments, powers of the betas and rates; the seeds stop after different numbers of updates."""
    wanted = {**CONTROLS[control], "learning_rate": 3e-3, "epochs": 4}
    given = random_rows(together_shape("ppo"), 3)
    for seed in range(3):
        given["rewards"][seed] *= (0.1, 1.0, 10.0)[seed]
        given["actions"][seed] *= (0.1, 1.0, 3.0)[seed]
    together = make_learner("ppo", SEEDS, wanted)
    for step in (40, 80):
        together.learn(filled_source(together, given), 0.0, step)
    for index, seed in enumerate(SEEDS):
        alone = make_learner("ppo", (seed,), wanted)
        own = {name: one[index : index + 1] for name, one in given.items()}
        for step in (40, 80):
            alone.learn(filled_source(alone, own), 0.0, step)
        for name, tensor in alone.state_dict().items():
            shared = together.state_dict()[name]
            if name == "beta_powers":
                mine = shared[..., index : index + 1]
            else:
                mine = (
                    shared[index : index + 1] if tensor.dim() and tensor.shape[0] == 1 and len(shared) == 3 else shared
                )
            assert mine.contiguous().numpy().tobytes() == tensor.numpy().tobytes(), name
    powers = together.state_dict()["beta_powers"][0, 0]
    if "target_kl" in wanted:
        taken = (powers.log() / math.log(0.9)).round().tolist()
        assert len(set(taken)) > 1 and 2 <= min(taken) < 40, taken  # of the 40 updates
    if "learning_rate_kl" in wanted:
        assert together.engine.buffers["running"]["rate"].unique().numel() > 1


def test_a_stopped_seed_continues_with_the_next_rollout() -> None:
    learner = make_learner("ppo", wanted={"target_kl": 1e-6, "learning_rate": 1e-2, "epochs": 2})
    rollout, taken = filled_source(learner), []
    for step in (40, 80):
        rows = rollout.columns
        params = learner.nets().actor(rows["obs"][0].flatten(0, 1))
        logprobs = learner.model.distribution.log_prob(params, rows["actions"][0].flatten(0, 1))
        rows["logprobs"][0].copy_(logprobs.detach().view(4, 10))
        before = learner.state_dict()["beta_powers"].clone()
        learner.learn(rollout, 0.0, step)
        powers = learner.state_dict()["beta_powers"] / before
        taken.append(round(float(powers[0, 0].log()) / math.log(0.9)))
    assert taken == [1, 1]  # the first update has no divergence, each later one too much
    assert learner.update_count == 20


# --- memory ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_the_loss_on_sequences_is_that_of_single_steps(kind: str) -> None:
    """Sequences start from the state in which they were collected and are reset where an episode starts."""
    settings = PPO.settings_type(
        recurrent=kind, recurrent_size=4, hidden_sizes=(8,), rollout_steps=10, batch_size=10, sequence_length=5
    )
    learner: Any = PPO.create(EnvSpec(vector(3), discrete(2)), settings, [7])
    layout, device = PPO.rollout_layout(settings), torch.device("cpu")
    rollout = Rollout(EnvSpec(vector(3), discrete(2)), layout, seeds=1, num_envs=2, steps=10, device=device, host=True)
    generator, logprobs = torch.Generator().manual_seed(0), []
    rollout.open_state["h"].normal_(generator=generator)  # of an episode that began before the rollout
    rollout.open_starts.fill_(False)
    ends = torch.zeros(10, 2, dtype=torch.bool)
    ends[2, 0] = ends[4, 1] = ends[7, 1] = True
    for step in range(10):
        obs = torch.randn(1, 2, 3, generator=generator)
        act = learner.act_explore(obs, step, 0.0, rollout.open_state)
        logprobs.append(act.extras["logprobs"][0])
        zeros = torch.zeros(1, 2)
        rollout.add(act.state, obs=obs, actions=act.action, rewards=zeros, next_obs=obs, truncated=zeros.bool(),
                    terminated=ends[step : step + 1], **act.extras)  # fmt: skip
    starts = rollout.columns["starts"][0]
    assert starts.nonzero().tolist() == [[0, 3], [1, 5], [1, 8]]
    batch = rollout.gather(torch.tensor([[2, 0, 3, 1]]))
    assert batch["obs"].shape == (1, 4, 5, 3) and batch["state.h"].shape == (1, 4, 4)
    one = {name: tensor[0] for name, tensor in batch.items()}
    result = learner.loss(learner.nets(), one, {})
    assert float(result.metrics["approx_kl"].detach()) < 1e-12
    wrong = {**one, "state.h": torch.zeros_like(one["state.h"])}
    assert float(learner.loss(learner.nets(), wrong, {}).metrics["approx_kl"].detach()) > 1e-9
    unreset = {**one, "starts": torch.zeros_like(one["starts"])}
    assert float(learner.loss(learner.nets(), unreset, {}).metrics["approx_kl"].detach()) > 1e-9


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recurrent": "rnn"}, "recurrent must be .*lstm.*gru.*got 'rnn'"),
        (
            {"recurrent": "gru", "rollout_steps": 30},
            r"rollout_steps must be a multiple of sequence_length \(16\), got 30",
        ),
        ({"recurrent": "gru", "batch_size": 40}, r"batch_size must be a multiple of sequence_length \(16\), got 40"),
        ({"clip_range": 0}, "clip_range must be > 0, got 0"),
    ],
)
def test_settings_that_do_not_fit(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        PPO.settings_type(**values)
