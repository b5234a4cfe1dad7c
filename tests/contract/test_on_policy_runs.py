"""Runs on rollouts: what is rejected, shortened, extended, saved and asked."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import masked_envs  # noqa: F401  registers its environments
import numpy as np
import pytest
import safetensors.torch
import torch
from hostile import seal

import rl_training
from rl_training.checkpoint.read import load_checkpoint
from rl_training.cli import main
from rl_training.core.checks import Note, UserError
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.session import TrainingFailure
from rl_training.run.workflows import evaluate_checkpoint

ALGORITHMS = ("ppo", "a2c", "pqn")


# --- bad input -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("algo", "sets", "message"),
    [
        ("ppo", ["batch_size=41", "rollout_steps=20", "num_envs=2"],
         "batch_size must be at most the rollout's 40 transitions (rollout_steps x num_envs), got 41"),
        ("pqn", ["recurrent=lstm"], "unknown key 'recurrent'; it is a setting of other algorithms, not of pqn"),
        ("sac", ["recurrent_size=4"], "unknown key 'recurrent_size'; it is a setting of other algorithms, not of sac"),
        ("a2c", ["batch_size=4"], "unknown key 'batch_size'; it is a setting of other algorithms, not of a2c"),
        ("ppo", ["recurrent=lstm", "rollout_steps=20", "sequence_length=7"],
         "rollout_steps must be a multiple of sequence_length (7), got 20"),
        ("ppo", ["recurrent=rnn"], "recurrent must be one of lstm, gru or null, got 'rnn'"),
        ("ppo", ["learning_starts=5"],
         "unknown key 'learning_starts'; it is a setting of other algorithms, not of ppo"),
        ("ppo", ["learning_rate_kl=0.01", "learning_rate_schedule=cosine"],
         "learning_rate_schedule must be constant, without a warm-up, where learning_rate_kl adapts the rate"),
        ("ppo", ["target_kl=0"], "target_kl must be > 0 or null, got 0"),
        ("ppo", ["normalize_advantages=sometimes"],
         "normalize_advantages must be one of minibatch, batch, off, got 'sometimes'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(algo: str, sets: list[str], message: str, capsys: Any, tmp_path: Path) -> None:
    env = "Pendulum-v1" if algo == "sac" else "CartPole-v1"
    words = ["train", algo, env, "--output-dir", str(tmp_path), "--total-timesteps", "100", "--quiet"]
    sets = [one if one.startswith("num_envs") else f"algo_kwargs.{one}" for one in sets]
    assert main([*words, *(word for one in sets for word in ("--set", one))]) == 2
    shown = capsys.readouterr().err.strip()
    assert shown.endswith(message) and "\n" not in shown and list(tmp_path.iterdir()) == []


def test_a_mask_without_an_allowed_action_is_named_with_its_place(quick_config, tmp_path: Path) -> None:
    config = quick_config("ppo", tmp_path, env_id="DoorsBlocked-v0", eval_episodes=0)
    where = r"environment 0 of seed 0, episode 0, step 15: .*action_mask must allow at least one action, got none"
    with pytest.raises(TrainingFailure, match=where):
        train(config, show_progress=False)


# --- the length of a run ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_run_shorter_than_a_rollout_shortens_it(algo: str, quick_config, tmp_path: Path) -> None:
    settings = {"rollout_steps": 50} if algo == "a2c" else {"rollout_steps": 50, "batch_size": 64}
    config = quick_config(algo, tmp_path, settings, total_timesteps=30, num_envs=2, eval_episodes=0)
    shortened = r"total_timesteps \(30\) is less than a rollout, which is shortened for this run .*50 -> 15"
    with pytest.warns(Note, match=shortened):
        made = train(config, show_progress=False)
    assert made.metrics == {"global_step": 30, "gradient_steps": 1 if algo == "a2c" else 2}
    longer = resume_training(made.run_dir, total_timesteps=90, show_progress=False)  # with the same rollouts
    assert longer.metrics == {"global_step": 90, "gradient_steps": 3 if algo == "a2c" else 6}


def test_a_recurrent_run_shorter_than_a_sequence(quick_config, tmp_path: Path) -> None:
    settings = {"recurrent": "gru", "sequence_length": 20, "rollout_steps": 40, "batch_size": 40}
    for steps, rollout, sequence in ((30, 20, 20), (7, 7, 7)):
        config = quick_config("ppo", tmp_path / str(steps), settings, total_timesteps=steps, eval_episodes=0)
        with pytest.warns(Note, match="is less than a rollout"):
            made = train(config, show_progress=False)
        used = load_checkpoint(made.checkpoint_path).state["config"]["algo_kwargs"]
        assert (used["rollout_steps"], used["sequence_length"], made.metrics["gradient_steps"]) == (
            rollout,
            sequence,
            2,
        )


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_the_last_partial_rollout_is_learned_from_when_the_run_is_extended(algo: str, quick_config, tmp_path) -> None:
    """50 steps are two rollouts of 20 and half of the third, which 60 steps complete: as if never interrupted."""
    runs = {}
    for name, total in (("short", 50), ("whole", 60)):
        config = quick_config(algo, tmp_path / name, total_timesteps=total, eval_episodes=0)
        runs[name] = train(config, show_progress=False)
    rollout = 1 if algo == "a2c" else 4
    assert runs["short"].metrics["gradient_steps"] == 2 * rollout
    saved = load_checkpoint(runs["short"].checkpoint_path)
    assert saved.state["parts"]["rollout"]["filled"] == 10
    assert saved.tensors("rollout.safetensors")["rewards"].shape == (1, 1, 10)
    longer = resume_training(runs["short"].run_dir, total_timesteps=60, show_progress=False)
    assert longer.metrics["gradient_steps"] == 3 * rollout == runs["whole"].metrics["gradient_steps"]
    found, expected = (
        load_checkpoint(run.checkpoint_path).tensors("learner.safetensors") for run in (longer, runs["whole"])
    )
    if algo != "pqn":  # whose rate and epsilon follow a schedule that ends with the run
        assert [name for name in expected if not torch.equal(found[name], expected[name])] == []


# --- files -----------------------------------------------------------------------------------------------------------
def damaged(run_dir: Path, change: Any) -> Path:
    """The newest checkpoint of a run after a change of its rollout, with a manifest that fits."""
    folder = max((run_dir / "checkpoints").iterdir())
    tensors = safetensors.torch.load((folder / "rollout.safetensors").read_bytes())
    state = json.loads((folder / "state.json").read_text())
    change(tensors, state["parts"]["rollout"])
    (folder / "rollout.safetensors").write_bytes(safetensors.torch.save(tensors))
    (folder / "state.json").write_text(json.dumps(state))
    seal(folder, step=50)
    return folder


CHANGES: dict[str, tuple[Any, str]] = {
    "a missing column": (lambda tensors, state: tensors.pop("rewards"), "rewards"),
    "a wrong shape": (lambda tensors, state: tensors.update(rewards=torch.zeros(1, 1, 3)), "rewards"),
    "a wrong type": (lambda tensors, state: tensors.update(obs=tensors["obs"].double()), "obs"),
    "too many steps": (lambda tensors, state: state.update(filled=20), "filled must be below rollout_steps"),
    "negative steps": (lambda tensors, state: state.update(filled=-1), "filled"),
    "an impossible action": (lambda tensors, state: tensors["actions"].fill_(7), "actions must be below"),
    "a negative action": (lambda tensors, state: tensors["actions"].fill_(-1), "actions must be below"),
    "no open state": (lambda tensors, state: tensors.pop("open.h"), "open.h"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_damaged_rollout_is_rejected(change: str, recurrent_run: Path, tmp_path: Path) -> None:
    run_dir = shutil.copytree(recurrent_run, tmp_path / "run")
    with pytest.raises(UserError, match=CHANGES[change][1]) as rejected:
        resume_training(damaged(run_dir, CHANGES[change][0]), total_timesteps=60, show_progress=False)
    assert "\n" not in str(rejected.value)


@pytest.fixture(scope="module")
def recurrent_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from conftest import make_quick_config

    folder = tmp_path_factory.mktemp("recurrent")
    settings = {"recurrent": "lstm", "batch_size": 10}
    return train(make_quick_config("ppo", folder, settings, total_timesteps=50), show_progress=False).run_dir


def test_an_agent_with_memory_is_asked_step_by_step(recurrent_run: Path, tmp_path: Path) -> None:
    agent = rl_training.load(recurrent_run)
    again = rl_training.load(agent.save(tmp_path / "agent.safetensors"))
    rng, states = np.random.default_rng(0), [{}, {}]
    for step in range(4):
        obs = rng.standard_normal((2, 4)).astype(np.float32)
        answers = [one.predict(obs, state=state) for one, state in zip((agent, again), states, strict=True)]
        states = [state for _, state in answers]
        assert np.array_equal(answers[0][0], answers[1][0]), step
        assert all(np.array_equal(states[0][name], states[1][name]) for name in ("h", "c"))
    fresh, reset = agent.predict(obs, state={})[1], agent.predict(obs, state=states[0], episode_start=[True, False])[1]
    assert np.array_equal(reset["h"][0], fresh["h"][0]) and not np.array_equal(reset["h"][1], fresh["h"][1])
    assert evaluate_checkpoint(recurrent_run, 3) == evaluate_checkpoint(tmp_path / "agent.safetensors", 3)


def test_a_run_on_rollouts_has_no_replay(recurrent_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no replay, since ppo has learned from rollouts, which are not kept"):
        _ = rl_training.load(recurrent_run).replay
    agent = rl_training.IQL("Pendulum-v1", dataset_path=recurrent_run, output_dir=tmp_path)
    with pytest.raises(UserError, match="its run learns from rollouts and has no replay"):
        agent.learn(10, show_progress=False)
