"""Observation normalisation lives in the learner: exact, per seed, resumed, exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import one_of_a_kind

from rl_training.algorithms import DQN, TD3, TD3BC
from rl_training.algorithms.base import Learner
from rl_training.algorithms.normalizer import GROUP
from rl_training.algorithms.td3 import TD3Settings
from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.results import TrainResult
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.models import MLPQNetwork, MLPTD3Model
from rl_training.run.agent import load_agent
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.session import Session

QuickConfig = Callable[..., Any]
SHAPE = EnvSpec(vector(3), continuous(1))
ON = {"normalize_observations": True, "buffer_capacity": 200}


def make_td3(seeds: tuple[int, ...] = (0,), **settings: Any) -> Learner:
    settings = {"hidden_sizes": (16,), "normalize_observations": True, **settings}
    return TD3.create(SHAPE, TD3Settings(**settings), seeds)


def show(learner: Learner, mean: Any, scale: Any) -> None:
    """Statistics that the networks see from now on."""
    learner.engine.set_group(GROUP, {"mean": torch.as_tensor(mean), "scale": torch.as_tensor(scale)})


# --- statistics ------------------------------------------------------------------------------------------------------
def test_running_statistics_are_those_of_all_observations() -> None:
    """A large mean: sums of squares would lose what Welford keeps."""
    learner, rng = make_td3((0, 1)), np.random.default_rng(0)
    obs = (1e4 + rng.standard_normal((50, 2, 4, 3)) * [0.1, 1.0, 10.0]).astype(np.float32)
    for step in obs:
        learner.observe(torch.from_numpy(step))
    by_seed = obs.astype(np.float64).transpose(1, 0, 2, 3).reshape(2, 200, 3)
    assert learner.normalizer is not None and learner.normalizer.count == 200
    np.testing.assert_allclose(learner.normalizer.mean, by_seed.mean(1), rtol=1e-13)
    np.testing.assert_allclose(learner.normalizer.squares / 200, by_seed.var(1), rtol=1e-10)
    group = learner.engine.groups()["normalizer"]
    np.testing.assert_allclose(group["mean"].numpy(), by_seed.mean(1), rtol=1e-7)
    np.testing.assert_allclose(group["scale"].numpy(), 1 / by_seed.std(1), rtol=1e-5)


def test_statistics_on_a_device_are_those_of_the_rows_one_by_one() -> None:
    """There all rows of a step count at once; the numbers are the same within rounding."""
    learners, rng = (make_td3((0, 1)), make_td3((0, 1))), np.random.default_rng(0)
    for _ in range(5):
        obs = torch.from_numpy((1e4 + rng.standard_normal((2, 60, 3)) * [0.1, 1.0, 10.0]).astype(np.float32))
        found = [learner.normalizer.observe(obs) for learner in learners[:1]]
        found.append(learners[1].normalizer._observe_on_device(obs))
    for name in ("mean", "scale"):
        torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-9, atol=0)
    assert learners[0].observation_count == learners[1].observation_count == 300
    torch.testing.assert_close(learners[0].normalizer.squares, learners[1].normalizer.squares, rtol=1e-8, atol=0)


def test_by_hand() -> None:
    """1 and 3: mean 2, variance 1. 5 becomes 3, 100 the limit; a number that never changed becomes 0, or the limit."""
    learner = make_td3()
    learner.observe(torch.tensor([[[1.0, 7.0, 0.0], [3.0, 7.0, 0.0]]]))
    assert learner.normalizer is not None
    seen = learner.normalizer.normalized(learner.nets().groups, torch.tensor([[5.0, 7.0, 0.0], [100, 9, -1]]))
    torch.testing.assert_close(seen, torch.tensor([[3.0, 0.0, 0.0], [10.0, 10.0, -10.0]]))


# --- what the networks see -----------------------------------------------------------------------------------------
def batch() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "obs": torch.randn(8, 3, generator=generator),
        "actions": torch.rand(8, 1, generator=generator) * 2 - 1,
        "rewards": torch.randn(8, generator=generator),
        "next_obs": torch.randn(8, 3, generator=generator),
        "dones": torch.zeros(8),
    }


def test_updates_and_actions_are_those_of_normalised_observations() -> None:
    with_it, without = make_td3(), make_td3(normalize_observations=False)
    mean, scale = np.array([1.0, -2.0, 0.5], np.float32), np.array([0.5, 2.0, 3.0], np.float32)
    show(with_it, mean, scale)

    def normalised(obs: torch.Tensor) -> torch.Tensor:
        return (obs - torch.from_numpy(mean)) * torch.from_numpy(scale)

    raw = batch()
    for _ in range(3):
        with_it.update(raw)
        without.update({**raw, "obs": normalised(raw["obs"]), "next_obs": normalised(raw["next_obs"])})
    for group in without.engine.flat:
        assert torch.equal(with_it.engine.flat[group], without.engine.flat[group]), group
    obs = raw["obs"].unsqueeze(0)
    for act in ("act_greedy", "act_explore"):
        rest = () if act == "act_greedy" else (5, 0.5)
        ours, theirs = getattr(with_it, act)(obs, *rest), getattr(without, act)(normalised(obs), *rest)
        assert torch.equal(ours.action, theirs.action)


def test_fixed_statistics_serve_every_seed() -> None:
    learner = make_td3((0, 1))
    show(learner, np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
    group = learner.engine.groups()["normalizer"]
    assert group["mean"].tolist() == [[1.0, 2.0, 3.0]] * 2
    assert group["scale"].tolist() == [[4.0, 5.0, 6.0]] * 2


def test_by_a_data_set_nothing_is_clipped_or_counted() -> None:
    learner = TD3BC(model=MLPTD3Model(3, 1, ()))
    assert learner.normalizer is not None
    show(learner, np.zeros(3), np.full(3, 100.0))
    seen = learner.normalizer.normalized(learner.nets().groups, torch.tensor([[1.0, -2.0, 0.1]]))
    torch.testing.assert_close(seen, torch.tensor([[100.0, -200.0, 10.0]]))
    learner.observe(torch.ones(1, 1, 3))
    assert learner.engine.groups()["normalizer"]["mean"].tolist() == [[0.0, 0.0, 0.0]]


def test_images_are_refused() -> None:
    with pytest.raises(ValueError, match="normalize_observations must be false for images"):
        DQN(q_network=MLPQNetwork((1, 40, 40), 2, (8,)), normalize_observations=True)


# --- runs ------------------------------------------------------------------------------------------------------------
def run(quick_config: QuickConfig, algo: str, path: Path, **changes: Any) -> TrainResult:
    callbacks = changes.pop("callbacks", ())
    return train(quick_config(algo, path, ON, num_envs=2, **changes), callbacks=callbacks, show_progress=False)


def tensors(result: TrainResult) -> dict[str, torch.Tensor]:
    return load_checkpoint(result.checkpoint_path).tensors("learner.safetensors")


@pytest.mark.parametrize("algo", one_of_a_kind("dqn", among=("dqn", "td3", "redq")))
def test_a_run_counts_every_observation_once(algo: str, quick_config: QuickConfig, tmp_path: Path) -> None:
    """And the episodes of its evaluations not at all."""
    result = run(quick_config, algo, tmp_path)
    state, checkpoint = tensors(result), load_checkpoint(result.checkpoint_path)
    rows = torch.cat([checkpoint.tensors(name)["obs"] for name in checkpoint.names("replay_")], 1).double()
    assert rows.shape[1] == int(state["normalizer.count"]) == 120
    torch.testing.assert_close(state["normalizer.mean"], rows.mean(1), rtol=1e-12, atol=1e-12)
    assert torch.equal(state["params.normalizer.mean"], state["normalizer.mean"].float())


@pytest.mark.sweep
def test_seeds_among_many_are_the_seeds_alone(quick_config: QuickConfig, tmp_path: Path) -> None:
    together = tensors(run(quick_config, "td3", tmp_path, seeds=(5, 0, 7)))
    alone = tensors(run(quick_config, "td3", tmp_path, seeds=(7,)))
    per_seed = [name for name in alone if name.startswith(("params.", "adam_", "normalizer.")) and alone[name].ndim]
    assert {"normalizer.mean", "normalizer.squares", "params.actor.net.layers.0.weight"} <= set(per_seed)
    assert [name for name in per_seed if not torch.equal(together[name][2], alone[name][0])] == []


class StopAt71(Callback):
    def on_step(self, session: Session) -> bool | None:
        return False if session.step >= 71 else None


@pytest.mark.sweep
def test_resume_is_exact(quick_config: QuickConfig, tmp_path: Path) -> None:
    whole = run(quick_config, "sac", tmp_path / "whole", seeds=(1, 2))
    cut = run(quick_config, "sac", tmp_path / "cut", seeds=(1, 2), callbacks=[StopAt71()])
    assert cut.metrics["global_step"] == 72
    resumed = resume_training(cut.run_dir, show_progress=False)
    first, second = tensors(whole), tensors(resumed)
    assert first.keys() == second.keys() and "normalizer.squares" in first
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("algo", one_of_a_kind("redq", among=("td3", "tqc", "redq")))
def test_the_statistics_travel_with_the_exported_agent(algo: str, quick_config: QuickConfig, tmp_path: Path) -> None:
    result = run(quick_config, algo, tmp_path)
    checkpointed = load_agent(result.checkpoint_path)
    exported = load_agent(load_agent(result.checkpoint_path).save(tmp_path / "agent"))
    assert torch.equal(exported.learner.nets().normalizer["mean"], tensors(result)["params.normalizer.mean"][0])
    obs = [0.3, -0.9, 4.0]
    assert np.array_equal(exported.predict(obs), checkpointed.predict(obs))
    show(exported.learner, np.zeros(3), np.ones(3))
    assert not np.array_equal(exported.predict(obs), checkpointed.predict(obs)), "the statistics matter"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("normalizer.count", torch.tensor(-1)),
        ("normalizer.squares", torch.full((1, 3), -1.0, dtype=torch.float64)),
        ("normalizer.mean", torch.zeros(1, 3)),
        ("normalizer.mean", torch.zeros(1, 4, dtype=torch.float64)),
    ],
)
def test_a_state_that_makes_no_sense_is_refused(name: str, value: torch.Tensor) -> None:
    learner = make_td3()
    with pytest.raises(ValueError, match="normalizer"):
        learner.load_state_dict({**learner.state_dict(), name: value})
