"""REDQ's losses and update against numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import REDQ, redq_loss
from rl_training.algorithms.redq import REDQSettings, _sample_target_critic_indices
from rl_training.config.train_config import TrainConfig
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.models import MLPREDQModel, MLPTQCModel
from rl_training.run.validate import parse_settings, with_task_defaults

METRICS = {"critic_loss", "actor_loss", "target_q_mean", "entropy_term"}
SHAPE = EnvSpec(vector(3), continuous(1))


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
@pytest.mark.parametrize("alpha", [0.5, torch.tensor(0.5)])
def test_redq_loss_by_hand(alpha: Any, shape: tuple[int, ...]) -> None:
    """Errors of three critics over two rows: (1, -1), (0, 2), (3, 0) give 1 + 2 + 4.5 = 7.5.

    Entropy term: 0.5 * mean(-1, 3) = 0.5. Actor: 0.5 - mean(4, 1) = -2.
    """
    values = redq_loss(
        {
            "critic_q_values": torch.tensor([[2.0, 1.0, 4.0], [3.0, 6.0, 4.0]]),
            "target_q_values": torch.tensor([1.0, 4.0]).view(shape),
            "sampled_logprobs": torch.tensor([-1.0, 3.0]),
            "sampled_q_values": torch.tensor([4.0, 1.0]),
            "alpha": alpha,
        }
    )
    expected = {"critic_loss": 7.5, "actor_loss": -2.0, "target_q_mean": 2.5, "entropy_term": 0.5}
    assert {name: value.item() for name, value in values.items()} == pytest.approx(expected)


# --- the subset ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("critics", "size"), [(10, 2), (5, 5), (1, 1), (7, 3)])
def test_indices_are_distinct_and_of_the_requested_number(critics: int, size: int) -> None:
    for _ in range(50):
        indices = _sample_target_critic_indices(num_critics=critics, subset_size=size).tolist()
        assert len(indices) == len(set(indices)) == size
        assert set(indices) <= set(range(critics))


def test_every_subset_is_as_likely() -> None:
    """Ten subsets, 20,000 draws: 2,000 each, give or take five standard deviations of 42."""
    torch.manual_seed(0)
    counts = dict.fromkeys(combinations(range(5), 2), 0)
    for uniforms in torch.rand(20_000, 5):
        drawn = _sample_target_critic_indices(num_critics=5, subset_size=2, uniforms=uniforms)
        counts[tuple(sorted(drawn.tolist()))] += 1
    assert all(abs(count - 2000) < 5 * 42.5 for count in counts.values()), counts


def test_equal_random_numbers_still_give_distinct_indices() -> None:
    drawn = _sample_target_critic_indices(num_critics=4, subset_size=3, uniforms=torch.full((4,), 0.5))
    assert drawn.tolist() == [0, 1, 2]


def make_redq(seeds: tuple[int, ...] = (0,), **changes: Any) -> REDQ:
    settings = REDQSettings(
        **{
            "hidden_sizes": (16,),
            "batch_size": 8,
            "buffer_capacity": 40,
            "num_critics": 5,
            "gradient_updates_per_step": 4,
            **changes,
        }
    )
    learner = REDQ.create(SHAPE, settings, seeds)
    assert isinstance(learner, REDQ)
    return learner


def filled_replay(seeds: int = 1) -> ReplayBuffer:
    replay = ReplayBuffer(SHAPE, capacity=40, num_envs=1, seeds=seeds)
    for tensor in replay.storage.values():
        if tensor.is_floating_point():
            tensor.normal_(generator=torch.Generator().manual_seed(0)).tanh_()
    replay.finish_writing(40)
    return replay


def test_a_subset_is_drawn_for_each_update_and_seed() -> None:
    learner = make_redq(seeds=(0, 1))
    drawn: list[list[tuple[int, ...]]] = []
    for update in range(40):
        learner.engine.update_count = update
        numbers = learner.engine.host_noise(learner.noise(8))["subset"]
        rows = [_sample_target_critic_indices(num_critics=5, subset_size=2, uniforms=row) for row in numbers]
        drawn.append([tuple(sorted(row.tolist())) for row in rows])
    assert len({pair[0] for pair in drawn}) == 10, "forty updates see all ten subsets"
    assert sum(pair[0] != pair[1] for pair in drawn) > 25, "seeds draw their own"


# --- one update ------------------------------------------------------------------------------------------------------
class FixedPolicy(nn.Module):
    """The action tanh(m), with log-density 2, whatever the noise."""

    def __init__(self) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.tensor(math.atanh(0.5)))

    def forward(self, obs: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.m.tanh().expand(len(obs), 1), torch.full((len(obs),), 2.0)


class LinearCritics(nn.Module):
    """Q_i = w_i * action; remembers how many were evaluated."""

    evaluated: list[int]

    def __init__(self, w: list[float]) -> None:
        super().__init__()
        self.w, self.evaluated = nn.Parameter(torch.tensor(w)), []

    def forward(self, obs: Tensor, actions: Tensor) -> Tensor:
        self.evaluated.append(len(self.w))
        return self.w[:, None] * actions[:, 0]


class HandModel(nn.Module):
    action_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = FixedPolicy(), LinearCritics([2.0, 4.0, 6.0, 8.0])


def hand_learner(**changes: Any) -> REDQ:
    """Four critics whose target copies differ from them: 80, 40, 20 and 60 times the action."""
    settings = {"learning_rate": 1e-9, "gamma": 0.5, "alpha": 0.25, "tau": 0.0, "num_critics": 4, **changes}
    learner = REDQ(model=HandModel(), **settings)
    learner.engine.groups()["target_critic"]["w"].copy_(torch.tensor([[80.0, 40.0, 20.0, 60.0]]))
    return learner


def hand_batch() -> dict[str, Tensor]:
    one = torch.ones(3, 1)
    return {"obs": one, "actions": one, "rewards": torch.ones(3), "next_obs": one, "dones": torch.zeros(3)}


@pytest.mark.parametrize(
    ("uniforms", "size", "least"),
    [([0.1, 0.9, 0.8, 0.2], 2, 30.0), ([0.9, 0.1, 0.2, 0.8], 2, 10.0), ([0.1, 0.2, 0.9, 0.3], 3, 20.0)],
)
def test_losses_by_hand(uniforms: list[float], size: int, least: float) -> None:
    """Target critics at action 0.5: 40, 20, 10, 30. The first draw takes the 1st and 4th, whose least is 30, and so on.

    Target: 1 + 0.5 * (least - 0.25 * 2). Predictions at action 1: 2, 4, 6, 8.
    Actor: the mean of all four at action 0.5 is 2.5, the entropy term 0.5: its loss is -2.
    """
    learner = hand_learner(subset_size=size)
    nets = learner.nets()
    noise = {"subset": torch.tensor(uniforms), "action": torch.zeros(3, 1), "next_action": torch.zeros(3, 1)}
    target = 1 + 0.5 * (least - 0.5)
    with torch.no_grad():
        critic = learner.critic_loss(nets, hand_batch(), noise).metrics
        policy = learner.policy_loss(nets, hand_batch(), noise).metrics
        ended = learner.critic_loss(nets, {**hand_batch(), "dones": torch.ones(3)}, noise).metrics
    assert critic["target_q_mean"].item() == pytest.approx(target)
    assert critic["critic_loss"].item() == pytest.approx(sum((q - target) ** 2 for q in (2, 4, 6, 8)))
    assert policy["actor_loss"].item() == pytest.approx(-2.0)
    assert policy["entropy_term"].item() == pytest.approx(0.5)
    assert ended["target_q_mean"].item() == pytest.approx(1.0), "nothing is behind a terminal state"


def test_only_the_drawn_target_critics_are_evaluated() -> None:
    learner = hand_learner()
    learner.update(hand_batch())  # the first look at the metrics' names evaluates everything once more
    evaluated = learner.model.critic.evaluated
    evaluated.clear()
    learner.update(hand_batch())
    assert evaluated == [2, 4, 4], "two in the target, all in the critics' loss and for the actor"


def test_a_direct_update_is_one_of_the_critics_and_one_of_the_actor() -> None:
    torch.manual_seed(0)
    model = MLPREDQModel(obs_dim=3, action_dim=1, hidden_sizes=(16,), num_critics=5)
    keywords = {"learning_rate": 3e-4, "gamma": 0.99, "alpha": 0.2, "tau": 0.005, "num_critics": 5, "subset_size": 2}
    learner = REDQ(model=model, **keywords)
    batch = {name: tensor[0, :8] for name, tensor in filled_replay().gather(torch.arange(40).unsqueeze(0)).items()}
    before = {name: flat.clone() for name, flat in learner.engine.flat.items()}
    result = learner.update(batch, global_step=1)
    assert (result.num_gradient_steps, learner.update_count) == (1, 1)
    assert set(result.metrics) >= METRICS and all(math.isfinite(value) for value in result.metrics.values())
    moved = [name for name, flat in learner.engine.flat.items() if not torch.equal(flat, before[name])]
    assert moved == ["actor", "critic", "target_critic"]


# --- the schedule ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_step_is_many_updates_of_the_critics_and_one_of_the_actor(seeds: tuple[int, ...]) -> None:
    learner, replay = make_redq(seeds), filled_replay(len(seeds))
    for step in range(3):
        learner.train(replay, 4, step)
    assert learner.update_count == 12
    steps_of_adam = torch.tensor([[0.9**12, 0.999**12], [0.9**3, 0.999**3]], dtype=torch.float64)
    torch.testing.assert_close(learner.engine.beta_powers, steps_of_adam, rtol=1e-12, atol=0)
    assert ["policy" in learner.engine.due(update) for update in range(1, 9)] == [False, False, False, True] * 2
    assert all(value is not None for row in learner.take_metrics() for value in row.values())


def bursts(sizes: list[int], compiled: bool = False) -> dict[str, Tensor]:
    """The state after bursts of updates as a CUDA graph holds them, run without one."""
    learner = make_redq((3, 4), gradient_updates_per_step=sum(sizes))
    engine, replay = learner.engine, filled_replay(2)
    engine.compiled, engine.backend = compiled, "aot_eager"
    with torch.no_grad():
        for size in sizes:
            dues = [engine.due(engine.update_count + 1 + number) for number in range(size)]
            learner.training.burst(replay, 8, learner.noise(8), dues)()
            for due in dues:
                engine.count(due)
    assert learner.update_count == int(engine.count_tensor) == sum(sizes)
    return learner.state_dict()


def test_updates_captured_together_are_those_made_one_by_one() -> None:
    together = bursts([4])
    for sizes in ([1, 1, 1, 1], [3, 1]):
        apart = bursts(sizes)
        assert all(torch.equal(apart[name], tensor) for name, tensor in together.items())


@pytest.mark.slow
def test_a_compiled_burst_is_an_eager_one() -> None:
    eager = bursts([2])
    for name, tensor in bursts([2], compiled=True).items():
        torch.testing.assert_close(tensor, eager[name], rtol=1e-5, atol=1e-5)


# --- model and settings ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hidden_sizes", [(), (8,), [8, 8]])
@pytest.mark.parametrize("critics", [1, 2, 5])
def test_values_are_batch_by_critics(hidden_sizes: Any, critics: int) -> None:
    torch.manual_seed(0)
    model = MLPREDQModel(obs_dim=3, action_dim=2, hidden_sizes=hidden_sizes, num_critics=critics)
    obs, actions = torch.randn(4, 3), torch.rand(4, 2) * 2 - 1
    values = model.q_values(obs, actions)
    assert values.shape == (4, critics)
    torch.testing.assert_close(model.q_values(obs[1], actions[1]), values[1:2])
    sampled = model.sample_actions(obs)
    assert sampled.actions.abs().max() <= 1 and sampled.logprobs.shape == (4,)
    assert model.sample_actions(obs[1]).actions.shape == (1, 2)


def test_networks_start_as_the_authors_do() -> None:
    """Weights within sqrt(6 / (in + out)), and up to there; biases zero."""
    torch.manual_seed(0)
    layer = MLPREDQModel(obs_dim=3, action_dim=1, hidden_sizes=(64, 64)).critic.net.layers[1]
    assert layer.weight.abs().max().item() == pytest.approx(math.sqrt(6 / 128), rel=1e-3)
    assert not layer.bias.any()


@pytest.mark.parametrize(
    ("env_id", "asked", "entropy"),
    [
        ("Hopper-v5", "auto", -1.0),
        ("HalfCheetah-v4", "auto", -3.0),
        ("Walker2d-v5", "auto", -3.0),
        ("Ant-v5", "auto", -4.0),
        ("Humanoid-v5", "auto", -2.0),
        ("Hopper", "auto", -1.0),  # Gymnasium takes the newest
        ("gymnasium:Hopper-v5", "auto", -1.0),
        ("my_tasks:Hopper-v5", "auto", "auto"),
        ("Hopper-v5", -0.5, -0.5),
        ("Pendulum-v1", "auto", "auto"),
        ("HumanoidStandup-v5", "auto", "auto"),
    ],
)
def test_target_entropy_by_task(env_id: str, asked: Any, entropy: Any) -> None:
    for given in ({"target_entropy": asked}, {}) if asked == "auto" else ({"target_entropy": asked},):
        config, _, settings = with_task_defaults(TrainConfig("redq", env_id, algo_kwargs=given))
        assert settings.target_entropy == entropy  # type: ignore[attr-defined]
        assert config.algo_kwargs.get("target_entropy", "auto") == entropy, "it stands in the run's config"
        elsewhere = dataclasses.replace(config, env_id="my_tasks:Hopper-v9")  # a resumed run keeps it
        assert parse_settings(elsewhere)[1].target_entropy == entropy  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subset_size": 0}, "subset_size must be >= 1"),
        ({"subset_size": 5}, "subset_size must be <= num_critics (4), got 5"),
        ({"num_critics": 0}, "num_critics must be >= 1"),
        ({"num_critics": 2.5}, "num_critics must be an integer"),
        ({"gradient_updates_per_step": 0}, "gradient_updates_per_step must be >= 1"),
    ],
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refused:
        REDQSettings(**{"num_critics": 4, **settings})
    assert str(refused.value).startswith(message)
    with pytest.raises(ValueError, match="must be"):
        hand_learner(**settings)
    if settings.keys() & {"subset_size"}:
        with pytest.raises(ValueError, match="subset_size must be"):
            _sample_target_critic_indices(num_critics=4, subset_size=settings["subset_size"])


@pytest.mark.parametrize("count", [0, -1, 2.5])
def test_critics_that_cannot_be_made_are_refused(count: Any) -> None:
    for make in (
        lambda: MLPREDQModel(obs_dim=3, action_dim=1, num_critics=count),
        lambda: _sample_target_critic_indices(num_critics=count, subset_size=1),
    ):
        with pytest.raises(ValueError, match=rf"num_critics must be an integer >= 1, got {count}"):
            make()
    with pytest.raises(ValueError, match=rf"num_quantiles must be an integer >= 1, got {count}"):
        MLPTQCModel(obs_dim=3, action_dim=1, num_quantiles=count)


def test_a_model_with_another_number_of_critics_is_refused() -> None:
    model = MLPREDQModel(obs_dim=3, action_dim=1, hidden_sizes=(), num_critics=3)
    with pytest.raises(ValueError, match="num_critics must be 3, as many as the model has, got 10"):
        REDQ(model=model)
