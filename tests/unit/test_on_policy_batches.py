"""Batches given to learners on rollouts, rollouts in pieces, and what their agents do not carry to another run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rl_training import PPO
from rl_training.algorithms import PPO as Learner
from rl_training.algorithms import on_policy
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec, continuous, discrete, image, vector
from rl_training.run.run import train


def learner(spec: EnvSpec = EnvSpec(vector(3), discrete(3)), **settings: Any) -> Any:  # noqa: B008
    return Learner.create(spec, Learner.settings_type(hidden_sizes=(8,), **settings), [0])


def batch(*shape: int, **changes: Any) -> dict[str, Any]:
    numbers = {name: torch.zeros(shape) for name in ("logprobs", "values", "advantages", "returns")}
    return {"obs": torch.ones(*shape, 3), "actions": torch.ones(shape, dtype=torch.int64), **numbers, **changes}


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_sequences_begin_episodes_unless_their_state_is_given(kind: str) -> None:
    sizes = {"recurrent": kind, "recurrent_size": 4, "sequence_length": 5, "batch_size": 10, "rollout_steps": 5}
    plain, told = learner(**sizes), learner(**sizes)
    found = plain.update(batch(2, 5, returns=torch.ones(2, 5))).metrics
    same = told.update({**batch(2, 5, returns=torch.ones(2, 5)), **told.first_steps(2, 5)}).metrics
    assert dict(found) == dict(same)
    assert all(torch.equal(a, told.seed_parameters(0)[n]) for n, a in plain.seed_parameters(0).items())
    starts = torch.zeros(2, 5, dtype=torch.bool)
    starts[:, 2] = True
    parted = learner(**sizes).update(batch(2, 5, returns=torch.ones(2, 5), starts=starts)).metrics
    assert parted["value_loss"] != found["value_loss"], "an episode that starts within forgets"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"values": None}, "missing: values"),
        ({"actions": torch.full((4,), 3)}, "actions must be below 3"),
        ({"actions": torch.zeros(4, 1, dtype=torch.int64)}, r"actions must be of shape"),
        ({"actions": torch.zeros(0, dtype=torch.int64)}, r"actions must be of shape"),
    ],
)
def test_a_batch_that_does_not_fit(changes: dict[str, Any], message: str) -> None:
    given = {name: value for name, value in batch(4, **changes).items() if value is not None}
    with pytest.raises(UserError, match=message):
        learner().update(given)


def test_actions_of_another_size_are_not_broadcast() -> None:
    with pytest.raises(UserError, match="actions must be of shape"):
        learner(EnvSpec(vector(3), continuous(2))).update(batch(4, actions=torch.zeros(4, 1)))


@pytest.mark.parametrize("obs", [vector(3), image(1, 36, 36)], ids=["vector", "image"])
def test_a_rollout_in_pieces_has_the_targets_of_the_whole(obs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = learner(EnvSpec(obs, discrete(3)))
    shape = (2, 7)
    seen = torch.randint(0, 255, (2, *shape, *obs.shape)).to(getattr(torch, obs.dtype))
    ended = torch.zeros(shape, dtype=torch.bool)
    rollout = {
        "obs": seen[0],
        "next_obs": seen[1],
        "rewards": torch.rand(shape),
        "terminated": ended,
        "truncated": ended,
    }
    whole = made.targets(made.nets(), rollout).columns
    monkeypatch.setattr(on_policy, "PIECE", 3 * obs.size)  # 14 rows: four pieces of three, and two rows
    pieces = made.targets(made.nets(), rollout).columns
    for name, column in whole.items():
        torch.testing.assert_close(pieces[name], column)


def quick(tmp_path: Path, total: int = 64, **settings: Any) -> TrainConfig:
    kwargs = {"rollout_steps": 16, "batch_size": 16, "hidden_sizes": [8], "epochs": 2, **settings}
    return TrainConfig(
        algo="ppo", env_id="CartPole-v1", total_timesteps=total, num_envs=2, output_dir=tmp_path, eval_episodes=0,
        device="cpu", compile="off", video=False, algo_kwargs=kwargs,
    )  # fmt: skip


def test_sequences_of_one_step(tmp_path: Path) -> None:
    config = quick(tmp_path, recurrent="lstm", recurrent_size=4, sequence_length=1)
    assert train(config, show_progress=False).metrics["gradient_steps"] == 8


@pytest.mark.sweep
def test_a_rate_that_adapted_stays_in_its_run(tmp_path: Path) -> None:
    kinds = {
        "plain": {},
        "stops": {"target_kl": 0.01},
        "adapts": {"learning_rate_kl": 1e-6},
        "scales": {"normalize_returns": True},
    }
    runs = {name: train(quick(tmp_path / name, **kwargs), show_progress=False) for name, kwargs in kinds.items()}
    small = {
        "rollout_steps": 16,
        "batch_size": 16,
        "hidden_sizes": [8],
        "num_envs": 2,
        "eval_episodes": 0,
        "video": False,
    }
    for start in runs.values():
        for kwargs in kinds.values():
            tuned = PPO("CartPole-v1", output_dir=tmp_path / "tuned", compile="off", **small, **kwargs)
            tuned.learn(32, from_agent=start.run_dir, show_progress=False)
    tuned = PPO(
        "CartPole-v1", output_dir=tmp_path / "rate", compile="off", learning_rate=2e-5, learning_rate_kl=1.0, **small
    )
    tuned.learn(32, from_agent=runs["adapts"].run_dir, show_progress=False)
    rate = tuned.learner.engine.buffers["running"]["rate"]
    assert 2e-5 < float(rate) <= 2e-5 * 1.5**tuned.learner.update_count + 1e-9


def test_rows_that_fill_no_minibatch_are_announced(tmp_path: Path, capsys: Any) -> None:
    train(quick(tmp_path, batch_size=7))
    assert "batch_size (7) does not divide the 32 transitions of a rollout: 4 of them" in capsys.readouterr().err
