"""DrQ's update against numbers worked out by hand, and which loss trains which network."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from test_sac_update import HAND_VALUES
from torch import Tensor, nn

from rl_training.algorithms import DrQ, drq_loss
from rl_training.algorithms.drq import DrQSettings
from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec, continuous, image
from rl_training.models import CNNDrQModel
from rl_training.models.augment import random_shift
from rl_training.models.cnn.encoders import DrQCNN, NatureCNN

SIZES: dict[str, Any] = {"features_dim": 8, "actor_hidden_sizes": (16,), "critic_hidden_sizes": (16,)}
SIDES = {"drq": 20, "nature": 36}


def random_batch(encoder: str = "drq", size: int = 4, seed: int = 0) -> dict[str, Tensor]:
    generator, side = torch.Generator().manual_seed(seed), SIDES[encoder]
    images = torch.randint(0, 256, (2, size, 6, side, side), dtype=torch.uint8, generator=generator)
    return {
        "obs": images[0],
        "actions": torch.rand(size, 2, generator=generator) * 2 - 1,
        "rewards": torch.randn(size, generator=generator),
        "next_obs": images[1],
        "dones": (torch.rand(size, generator=generator) < 0.3).float(),
    }


def make_drq(encoder: str = "drq", seed: int = 0, **changes: Any) -> DrQ:
    torch.manual_seed(seed)
    model = CNNDrQModel((6, SIDES[encoder], SIDES[encoder]), 2, **SIZES, encoder=encoder)
    keywords = {"learning_rate": 1e-3, "gamma": 0.99, "alpha": 0.1, "tau": 0.01, "augmentation_pad": 4}
    return DrQ(model=model, **{**keywords, **changes})


# --- losses -----------------------------------------------------------------------------------------------------------
def test_drq_loss_by_hand() -> None:
    """Critics: errors 1, -1 give 1; errors 0, 2 give 2; together 3. Actor: 0.5 * mean(-1, 3) - mean(4, 1) = -2."""
    values = {**HAND_VALUES, "alpha": 0.5}
    expected = {"critic_loss": 3.0, "actor_loss": -2.0, "target_q_mean": 2.5, "entropy_term": 0.5}
    assert {name: value.item() for name, value in drq_loss(values).items()} == pytest.approx(expected)


class TopLeft(nn.Module):
    """The feature of an image is its first pixel, times a parameter."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, obs: Tensor) -> Tensor:
        return self.scale * obs[:, 0, 0, :1].float()


class Policy(nn.Module):
    """The action m * feature, with log-density `feature`."""

    def __init__(self, m: float) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.tensor(m))

    def forward(self, features: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.m * features, features[:, 0]


class Critics(nn.Module):
    """Q_i = w_i * action + feature."""

    def __init__(self, w: list[float]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(w))

    def forward(self, features: Tensor, actions: Tensor) -> Tensor:
        return self.w[:, None] * actions[:, 0] + features[:, 0]


class HandModel(nn.Module):
    action_dim = 1

    def __init__(self, own: float | None = None) -> None:
        super().__init__()
        self.encoder, self.actor, self.critic = TopLeft(1.0), Policy(0.5), Critics([1.0, 2.0])
        self.actor_encoder = None if own is None else TopLeft(own)


def hand_learner(own: float | None = None, **settings: Any) -> DrQ:
    wanted = {"learning_rate": 1e-9, "gamma": 0.5, "alpha": 0.1, "tau": 0.0, "augmentation_pad": 1, **settings}
    learner = DrQ(model=HandModel(own), **wanted)
    groups = learner.engine.groups()
    groups["target_encoder"]["scale"].fill_(10.0)
    groups["target_critic"]["w"].copy_(torch.tensor([[3.0, 4.0]]))
    return learner


OBS, NEXT_OBS = [[1, 2], [3, 4]], [[5, 6], [7, 8]]


def hand_losses(learner: DrQ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """One row. obs is seen unmoved (1) and one down (its first pixel is 3); next_obs unmoved (5) and one right (6)."""
    batch = {
        "obs": torch.tensor([[OBS]], dtype=torch.uint8),
        "next_obs": torch.tensor([[NEXT_OBS]], dtype=torch.uint8),
        "actions": torch.tensor([[-1.0]]),
        "rewards": torch.tensor([4.0]),
        "dones": torch.tensor([0.0]),
    }
    noise = {
        "shift": torch.tensor([[0.5, 0.5], [0.9, 0.5]]),
        "next_shift": torch.tensor([[0.5, 0.5], [0.5, 0.9]]),
        "next_action": torch.zeros(2, 1),
        "action": torch.zeros(1, 1),
    }
    nets = learner.nets()
    return learner.critic_loss(nets, batch, noise).metrics, learner.policy_loss(nets, batch, noise).metrics


def test_targets_are_a_mean_over_shifts_and_so_are_the_losses() -> None:
    """The policy looks through the online convolutions (scale 1): actions 2.5 and 3, log-densities 5 and 6.

    The target critics look through theirs (scale 10): min(3, 4) * 2.5 + 50 = 57.5 and 3 * 3 + 60 = 69. Less 0.1 times
    the log-densities: 57 and 68.4, on average 62.7. Target: 4 + 0.5 * 62.7 = 35.35.
    Critics at action -1: feature 1 gives 0 and -1, feature 3 gives 2 and 1. Mean of squares over the two shifts:
    first critic (35.35^2 + 33.35^2) / 2, second (36.35^2 + 34.35^2) / 2.
    Actor, on the first shift alone: action 0.5, Q = min(0.5, 1) + 1 = 1.5, entropy term 0.1 * 1.
    """
    critic, policy = hand_losses(hand_learner())
    assert critic["target_q_mean"].item() == pytest.approx(35.35)
    expected = (35.35**2 + 33.35**2) / 2 + (36.35**2 + 34.35**2) / 2
    assert critic["critic_loss"].item() == pytest.approx(expected, rel=1e-6)
    assert policy["entropy_term"].item() == pytest.approx(0.1)
    assert policy["actor_loss"].item() == pytest.approx(0.1 - 1.5)


def test_an_actor_with_convolutions_of_its_own_looks_through_them() -> None:
    """Scale 2: actions 5 and 6, log-densities 10 and 12. Targets 3 * 5 + 50 - 1 = 64, 3 * 6 + 60 - 1.2 = 76.8.

    Mean 70.4, target 39.2. Actor: feature 2, action 1, while the critics still see 1: Q = min(1, 2) + 1 = 2.
    """
    critic, policy = hand_losses(hand_learner(own=2.0))
    assert critic["target_q_mean"].item() == pytest.approx(39.2)
    assert policy["actor_loss"].item() == pytest.approx(0.1 * 2 - 2)


@pytest.mark.parametrize("copies", [(2, 3), (3, 1)])
def test_a_batch_is_its_rows_one_by_one(copies: tuple[int, int]) -> None:
    """Each row with its own shifts and actions: the shifts of a row stand a batch apart."""
    learner = make_drq(target_augmentations=copies[0], loss_augmentations=copies[1])
    nets, batch = learner.nets(), random_batch()
    noise = {name: value[0] for name, value in learner.engine.host_noise(learner.noise(4)).items()}

    def losses(batch: dict[str, Tensor], noise: dict[str, Tensor]) -> list[float]:
        with torch.no_grad():
            critic, policy = learner.critic_loss(nets, batch, noise), learner.policy_loss(nets, batch, noise)
        return [critic.loss.item(), critic.metrics["target_q_mean"].item(), policy.loss.item()]

    alone = [
        losses(
            {name: value[row : row + 1] for name, value in batch.items()},
            {name: value[row::4] for name, value in noise.items()},
        )
        for row in range(4)
    ]
    assert losses(batch, noise) == pytest.approx(np.mean(alone, 0).tolist(), rel=1e-4)


@pytest.mark.parametrize("encoder", ["drq", "nature"])
def test_which_loss_trains_which_convolutions(encoder: str) -> None:
    """Neither loss moves what the other one trains, and the targets move with the actor."""
    learner = make_drq(encoder)
    groups = [phase.groups for phase in learner.engine.phases]
    own = ("actor_encoder",) if encoder == "nature" else ()
    assert groups == [("encoder", "critic"), (*own, "actor")]
    before = {name: flat.clone() for name, flat in learner.engine.flat.items()}
    batch, noise = random_batch(encoder), learner.engine.host_noise(learner.noise(4))
    learner.engine.update({name: value.unsqueeze(0) for name, value in batch.items()}, noise, due=())
    assert all(torch.equal(before[name], flat) for name, flat in learner.engine.flat.items())
    tensors = {name: value.unsqueeze(0) for name, value in batch.items()}
    learner.engine.update(tensors, noise, due=("critic",))
    moved = {name for name, flat in learner.engine.flat.items() if not torch.equal(before[name], flat)}
    assert moved == {"encoder", "critic"}, "the targets wait for the actor"
    before = {name: flat.clone() for name, flat in learner.engine.flat.items()}
    learner.engine.update(tensors, noise, due=("policy",))
    moved = {name for name, flat in learner.engine.flat.items() if not torch.equal(before[name], flat)}
    assert moved == {*groups[1], "target_critic", "target_encoder"}


def test_actor_and_targets_move_at_every_second_update_of_a_run() -> None:
    learner = make_drq()
    assert [learner.engine.due(update) for update in (1, 2, 3, 4)] == [("critic",), ("critic", "policy")] * 2
    assert learner.target_update().after == "policy"


# --- one update -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("encoder", ["drq", "nature"])
@pytest.mark.parametrize("alpha", [0.1, "auto"])
def test_update_stand_alone(encoder: str, alpha: Any) -> None:
    learner = make_drq(encoder, alpha=alpha)
    result = learner.update(random_batch(encoder), global_step=3)
    assert result.num_gradient_steps == learner.update_count == 1
    assert set(result.metrics) >= {"critic_loss", "actor_loss", "target_q_mean", "entropy_term", "algorithm_updates"}
    assert all(math.isfinite(value) for value in result.metrics.values())
    assert learner.alpha == pytest.approx(0.1, rel=2e-3)
    assert (learner.alpha == pytest.approx(0.1, rel=1e-6)) is (alpha == 0.1)
    assert learner.update(random_batch(encoder)).metrics["algorithm_updates"] == 2.0
    plain = (60 * torch.arange(4)).to(torch.uint8).view(4, 1, 1, 1).expand_as(random_batch(encoder)["obs"])
    batch = {**random_batch(encoder), "obs": plain, "dones": torch.ones(4)}
    losses = [learner.update(batch).metrics["critic_loss"] for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0], "the brightness of an image tells its reward"


def test_one_shift_each_is_allowed() -> None:
    learner = make_drq(target_augmentations=1, loss_augmentations=1)
    assert learner.noise(4)["shift"].shape == learner.noise(4)["next_shift"].shape == (4, 2)
    assert math.isfinite(learner.update(random_batch()).metrics["critic_loss"])


def test_bytes_and_the_same_numbers_as_floats_give_the_same_update() -> None:
    batch, learners = random_batch(), (make_drq(), make_drq())
    learners[0].update(batch)
    learners[1].update({**batch, "obs": batch["obs"].float(), "next_obs": batch["next_obs"].float()})
    assert torch.equal(learners[0].engine.flat["encoder"], learners[1].engine.flat["encoder"])


def test_convolutions_in_bfloat16_are_near_those_in_float32() -> None:
    """Eight bits of a number: 1 part in 256 a layer. Parameters, features and everything behind them stay float32."""
    torch.manual_seed(0)
    exact, rough = DrQCNN((6, 20, 20)), DrQCNN((6, 20, 20), precision="bfloat16")
    rough.load_state_dict(exact.state_dict())
    features = exact(random_batch()["obs"]), rough(random_batch()["obs"])
    assert features[1].dtype == rough.layers[0].weight.dtype == torch.float32
    assert 0 < (features[0] - features[1]).abs().max() < 0.02 * features[0].abs().max()
    torch.manual_seed(0)
    learner = DrQ(model=CNNDrQModel((6, 20, 20), 2, **SIZES, precision="bfloat16"))
    reference = make_drq().update(random_batch()).metrics["critic_loss"]
    assert learner.update(random_batch()).metrics["critic_loss"] == pytest.approx(reference, rel=0.05)


# --- state ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("encoder", "alpha"), [("drq", "auto"), ("nature", 0.2)])
def test_a_fresh_learner_resumes_from_the_state_with_the_same_bits(encoder: str, alpha: Any) -> None:
    first, second = make_drq(encoder, 0, alpha=alpha), make_drq(encoder, 1, alpha=alpha)
    for step in range(3):
        first.update(random_batch(encoder, seed=step))
    second.load_state_dict({name: tensor.clone() for name, tensor in first.state_dict().items()})
    assert (second.update_count, second.alpha) == (3, first.alpha)
    for learner in (first, second):
        learner.update(random_batch(encoder, seed=9))
    states = first.state_dict(), second.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


# --- model and settings -----------------------------------------------------------------------------------------------
def test_the_networks_are_those_of_the_paper() -> None:
    model = CNNDrQModel((9, 84, 84), 3)
    assert [tuple(layer.weight.shape) for layer in model.encoder.layers] == [(32, 9, 3, 3), *[(32, 32, 3, 3)] * 3]
    assert [layer.stride for layer in model.encoder.layers] == [(2, 2), (1, 1), (1, 1), (1, 1)]
    assert model.encoder.features == 32 * 35 * 35 and model.actor_encoder is None
    assert model.actor.narrow.weight.shape == model.critic.narrow.weight.shape == (1, 39200, 50)
    assert [tuple(layer.weight.shape) for layer in model.critic.head.net.layers] == [
        (2, 53, 1024), (2, 1024, 1024), (2, 1024, 1),
    ]  # fmt: skip
    assert isinstance(CNNDrQModel((9, 84, 84), 3, encoder="nature").actor_encoder, NatureCNN)


def test_weights_start_orthogonal() -> None:
    model = CNNDrQModel((6, 20, 20), 2, **SIZES)
    weight = model.encoder.layers[1].weight.flatten(1)
    torch.testing.assert_close(weight @ weight.T, 2 * torch.eye(32), atol=1e-5, rtol=0)
    narrow = model.critic.narrow.weight[0]
    torch.testing.assert_close(narrow.T @ narrow, torch.eye(8), atol=1e-5, rtol=0)
    assert not model.encoder.layers[0].bias.any() and not model.critic.narrow.bias.any()


@pytest.mark.parametrize(("raw", "log_std"), [(-100.0, -10.0), (0.0, -4.0), (100.0, 2.0), (math.atanh(0.5), -1.0)])
def test_the_spread_is_squeezed_into_its_range(raw: float, log_std: float) -> None:
    """-10 + 6 * (tanh(raw) + 1): at noise 1 and mean 0 the action is tanh(std)."""
    model = CNNDrQModel((6, 20, 20), 1, 8, (), ())
    (layer,) = model.actor.head.net.layers
    with torch.no_grad():
        layer.weight.zero_()
        layer.bias.copy_(torch.tensor([0.0, raw]).view_as(layer.bias))
    actions, _ = model.actor(torch.zeros(1, model.encoder.features), torch.ones(1, 1))
    assert actions.item() == pytest.approx(math.tanh(math.exp(log_std)), rel=1e-4)


@pytest.mark.parametrize("encoder", ["drq", "nature"])
def test_one_observation_is_a_batch_of_one(encoder: str) -> None:
    torch.manual_seed(0)
    side = SIDES[encoder]
    model = CNNDrQModel((6, side, side), 2, **SIZES, encoder=encoder)
    obs, actions = random_batch(encoder)["obs"], torch.rand(4, 2) * 2 - 1
    batch = model.sample_actions(obs, deterministic=True)
    single = model.sample_actions(obs[1], deterministic=True)
    torch.testing.assert_close(single.actions, batch.actions[1:2], atol=1e-6, rtol=1e-5)
    q1, q2 = model.q_values(obs[1], actions[1])
    torch.testing.assert_close(torch.cat([q1, q2]), torch.stack(model.q_values(obs, actions))[:, 1])
    sampled = model.sample_actions(obs)
    assert sampled.actions.shape == (4, 2) and sampled.actions.abs().max() <= 1 and sampled.logprobs.shape == (4,)


def test_acting_sees_images_as_they_are() -> None:
    learner, obs = make_drq(), random_batch()["obs"]
    greedy = learner.act_greedy(obs.unsqueeze(0)).action[0]
    expected = learner.model.sample_actions(obs, deterministic=True).actions.detach()
    assert torch.equal(greedy, expected)
    shifted = random_shift(obs, torch.full((4, 2), 0.99), 4)
    assert not torch.equal(learner.model.sample_actions(shifted, deterministic=True).actions, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "natur"}, "encoder must be one of drq, nature, got 'natur'; did you mean nature?"),
        ({"precision": "float16"}, "precision must be one of float32, bfloat16, got 'float16'"),
        ({"augmentation_pad": -1}, "augmentation_pad must be >= 0, got -1"),
        ({"target_augmentations": 0}, "target_augmentations must be >= 1 and <= 64, got 0"),
        ({"features_dim": 0}, "features_dim must be >= 1, got 0"),
        ({"actor_hidden_sizes": [8, 0]}, "actor_hidden_sizes must be sizes >= 1"),
        ({"normalize_observations": True}, "normalize_observations must be false for images"),
    ],
)
def test_refused_settings(settings: dict[str, Any], message: str) -> None:
    shape = EnvSpec(image(6, 20, 20, frames=2), continuous(2))
    with pytest.raises(ValueError) as refused:
        DrQ.create(shape, DrQSettings(**settings, hidden_sizes=(8,)), [0])
    assert message in str(refused.value)


def test_images_of_another_shape_are_refused_in_one_line() -> None:
    batch = random_batch()
    with pytest.raises(UserError, match=r"this network takes images of shape \(6, 20, 20\), got \(8, 6, 18, 20\)"):
        make_drq().update({**batch, "next_obs": batch["next_obs"][:, :, :18]})
    with pytest.raises(UserError, match="images to shift must be"):
        make_drq().update({**batch, "next_obs": torch.zeros(4, 3)})
    with pytest.raises(UserError, match=r"must be \(channels, height, width\), got \(84, 84, 9\), channels last"):
        CNNDrQModel((84, 84, 9), 2)


def test_the_actor_sees_through_the_convolutions_as_the_critics_step_left_them() -> None:
    """The authors' order: the critics' step, then the actor's loss through the new convolutions."""
    learner, batch = make_drq(policy_delay=1, learning_rate=0.05), random_batch()
    noise = {name: value[0] for name, value in learner.engine.host_noise(learner.noise(4)).items()}
    actor = {name: value.clone() for name, value in learner.nets().groups["actor"].items()}
    with torch.no_grad():
        before = learner.policy_loss(learner.nets(), batch, noise).loss
        reported = learner.update(batch).metrics["actor_loss"]
        nets = learner.binding.networks_of({**learner.nets().groups, "actor": actor})
        after = learner.policy_loss(nets, batch, noise).loss
    assert reported == pytest.approx(after.item(), rel=1e-5) and reported != pytest.approx(before.item(), rel=1e-2)
