"""Offline learning from a dataset in memory: a mapping of arrays or a `TransitionDataset`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rl_training
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.checks import UserError
from rl_training.data import TransitionDataset
from rl_training.data.datasets.formats.writing import save_transitions
from rl_training.data.datasets.generate import record_random
from rl_training.envs.host.factory import EnvSource
from rl_training.run.callbacks import Callback
from rl_training.run.manager import DefaultExperimentManager
from rl_training.run.resume import resume_training
from rl_training.runtime.iql_trainer import train_iql

OFFLINE = [name for name in algorithm_names() if learner_class(name).offline]
QUICK: dict[str, Any] = {
    "total_timesteps": 20, "eval_episodes": 0, "video": False, "report": False, "device": "cpu", "compile": "off",
    "threads": 1, "hidden_sizes": (8,), "batch_size": 8, "reward_scale": 1.0, "checkpoint_interval": 7,
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded() -> Any:
    return record_random(EnvSource("Pendulum-v1"), 90, seed=0)


@pytest.fixture
def arrays(recorded) -> dict[str, np.ndarray]:
    names = {"terminated": "terminations", "truncated": "truncations"}
    return {names.get(name, name): array.copy() for name, array in recorded.arrays().items()}


def managed(algo: str, path: Path, dataset: Any, **changes: Any) -> Any:
    cls = getattr(rl_training, learner_class(algo).__name__)
    return cls("Pendulum-v1", dataset=dataset, output_dir=path, **{**QUICK, **changes})


def learner_bits(run_dir: Path) -> dict[str, bytes]:
    (*_, newest) = sorted((run_dir / "checkpoints").iterdir())
    tensors = load_checkpoint(newest).tensors("learner.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def record_of(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "run.json").read_text())


class Kill(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session: Any) -> None:
        if session.step == self.step:
            raise LookupError("as if killed")


@pytest.mark.parametrize("algo", OFFLINE)
def test_a_dataset_in_memory_trains_as_the_same_one_in_a_file(algo: str, recorded, arrays, tmp_path: Path) -> None:
    """Actions are in the environment's units in both: Pendulum's reach 2."""
    path = save_transitions(recorded, tmp_path / "data.npz")
    in_file = managed(algo, tmp_path / "file", None, dataset_kind="file", dataset_path=str(path))
    expected = learner_bits(in_file.learn(show_progress=False).run_dir)
    assert np.abs(arrays["actions"]).max() > 1
    agent = managed(algo, tmp_path / "memory", arrays).learn(show_progress=False)
    assert learner_bits(agent.run_dir) == expected
    about = record_of(agent.run_dir)["dataset"]
    assert (about["sha256"], about["transitions"], about["kind"]) == (recorded.sha256(), 90, "memory")
    assert about["source"] == "arrays in memory, passed in Python"
    assert agent.config.algo_kwargs["dataset_kind"] == "memory"
    agent.learn(5, show_progress=False)  # the agent still has its data
    assert agent.result.metrics["global_step"] == 25


def test_a_dataset_by_other_names_and_types(recorded, arrays, tmp_path: Path) -> None:
    expected = learner_bits(managed("iql", tmp_path, arrays).learn(show_progress=False).run_dir)
    flags = {"terminals": arrays["terminations"], "timeouts": arrays["truncations"].astype(np.float32)}
    d4rl = {
        "observations": torch.from_numpy(arrays["obs"]), "actions": arrays["actions"], "rewards": arrays["rewards"],
        "next_observations": arrays["next_obs"], **flags, "infos/what": "ignored",
    }  # fmt: skip
    whole = TransitionDataset.from_dict(arrays)
    path = save_transitions(recorded, tmp_path / "data.npz")
    with np.load(path) as archive:
        for dataset in (d4rl, whole, archive):
            agent = managed("iql", tmp_path, dataset).learn(show_progress=False)
            assert learner_bits(agent.run_dir) == expected
    lists = {name: array.tolist() for name, array in arrays.items()}
    assert managed("bc", tmp_path, lists).learn(show_progress=False).result.metrics["global_step"] == 20


@pytest.mark.sweep
def test_a_run_on_a_dataset_in_memory_is_resumed_with_it(recorded, arrays, tmp_path: Path) -> None:
    expected = learner_bits(managed("iql", tmp_path / "whole", arrays).learn(show_progress=False).run_dir)
    for step in (3, 10):  # before and after its first checkpoint
        agent = managed("iql", tmp_path / str(step), arrays)
        with pytest.raises(LookupError):
            agent.learn(callbacks=Kill(step), show_progress=False)
        run_dir = agent.run_dir
        missing = r"must be passed, in Python with dataset=\.\.\.; a file that holds the same is named with data="
        with pytest.raises(UserError, match=missing):
            resume_training(run_dir, show_progress=False)
        other = {**arrays, "rewards": arrays["rewards"] + 1}
        with pytest.raises(UserError, match=r"the dataset has changed \(sha256 .*force=True resumes with it"):
            resume_training(run_dir, dataset=other, show_progress=False)
        forced = tmp_path / f"forced{step}"
        made = resume_training(run_dir, output_dir=forced, dataset=other, force=True, show_progress=False).run_dir
        record = record_of(made)
        assert record["resume"] == "inexact" and "the dataset has changed" in record["resume_note"]
        assert learner_bits(made) != expected
        resume_training(run_dir, dataset={name: array.copy() for name, array in arrays.items()}, show_progress=False)
        assert learner_bits(run_dir) == expected and record_of(run_dir)["resume"] == "exact"
    arrays["rewards"][0] += 1  # the agent's own object, changed since
    with pytest.raises(UserError, match="the dataset has changed"):
        agent.learn(show_progress=False)
    path = save_transitions(recorded, tmp_path / "data.npz")  # a file that holds the same
    assert agent.resume(total_timesteps=30, data=[path], show_progress=False).result.metrics["global_step"] == 30
    assert agent.learn(2, show_progress=False).result.metrics["global_step"] == 32


def test_a_loaded_agent_takes_a_dataset(arrays, tmp_path: Path) -> None:
    agent = managed("bc", tmp_path / "old", arrays).learn(show_progress=False)
    run_dir, path = agent.run_dir, agent.save(tmp_path / "agent")
    with pytest.raises(UserError, match="the dataset itself must be passed"):
        rl_training.BC.load(run_dir).learn(5, show_progress=False)
    assert rl_training.BC.load(run_dir, dataset=arrays).learn(5, show_progress=False).agent.step == 25
    new = rl_training.BC.load(path, dataset=arrays, output_dir=tmp_path / "new").learn(5, show_progress=False)
    assert new.agent.step == 5 and new.run_dir != run_dir
    resumed = rl_training.BC("Pendulum-v1").resume(new.run_dir, 8, dataset=arrays, show_progress=False)
    assert resumed.agent.step == 8 and resumed.learn(2, show_progress=False).agent.step == 10


def test_a_dataset_in_memory_in_place_of_a_recipe(quick_config, arrays, tmp_path: Path) -> None:
    config = quick_config("iql", tmp_path, total_timesteps=10, eval_episodes=0)  # of random actions
    prepared = DefaultExperimentManager().setup(config, show_progress=False, dataset=arrays)
    for result in (prepared.train(), train_iql(config, show_progress=False, dataset=arrays)):
        assert record_of(result.run_dir)["dataset"]["transitions"] == 90


def test_a_dataset_in_memory_without_an_environment(tmp_path: Path, arrays) -> None:
    """Without an environment actions are taken to be in [-1, 1], as from a file."""
    names = {**arrays, "actions": arrays["actions"] / 2}
    agent = rl_training.BC("Nowhere-v0", dataset=names, output_dir=tmp_path, **QUICK).learn(show_progress=False)
    assert agent.result.metrics["global_step"] == 20
    with pytest.raises(UserError, match=r"dataset: actions must be in \[-1, 1\].*clip them with clip_actions=True"):
        rl_training.BC("Nowhere-v0", dataset=arrays, output_dir=tmp_path, **QUICK).learn(show_progress=False)


def without(arrays: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: array for name, array in arrays.items() if name not in names}


WRONG = {
    "a path": (lambda a: "data.npz", r"dataset must be a mapping .*, got 'data.npz'; a file goes in dataset_path"),
    "a list": (lambda a: [a], "dataset must be a mapping of arrays or a TransitionDataset, got list"),
    "no rewards": (lambda a: without(a, "rewards"), "dataset: has no rewards; it has actions, next_obs, obs"),
    "lengths": (lambda a: {**a, "rewards": a["rewards"][:5]}, "dataset: all arrays must have the same length, got"),
    "text": (lambda a: {**a, "rewards": ["x"] * 90}, "dataset: rewards must be an array of numbers of at most 64 bits"),
    "ragged": (lambda a: {**a, "obs": [[1.0], [1.0, 2.0]]}, "dataset: obs must be an array of numbers, got Value"),
    "none": (lambda a: {**a, "obs": None}, "dataset: obs must be an array of numbers of at most 64 bits, got object"),
    "nan": (lambda a: {**a, "rewards": a["rewards"] * np.nan}, "NaN .* leave them out with drop_nonfinite=True"),
    "flags": (lambda a: {**a, "terminations": np.full(90, 2)}, "dataset: terminals must be 0 or 1, got 2"),
    "actions": (lambda a: {**a, "actions": a["actions"] * 9}, "dataset: actions must be in Box.*clip_actions=True"),
    "another space": (lambda a: {**a, "obs": a["obs"][:, :2], "next_obs": a["obs"][:, :2]}, "observations are of"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_dataset_is_rejected_in_one_line(change: Any, message: str, arrays, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as refused:
        managed("iql", tmp_path / "runs", change(arrays)).learn(show_progress=False)
    assert "\n" not in str(refused.value) and not (tmp_path / "runs").exists()


def test_a_dataset_that_has_no_place_is_rejected(arrays, tmp_path: Path, quick_config) -> None:
    with pytest.raises(UserError, match="sac does not learn from a dataset; use bc, iql, cql, td3_bc"):
        rl_training.SAC("Pendulum-v1", dataset=arrays)
    with pytest.raises(UserError, match="dataset and dataset_path must not both be given"):
        rl_training.IQL("Pendulum-v1", dataset=arrays, dataset_kind="file", dataset_path="x.npz")
    run_dir = train_iql(quick_config("iql", tmp_path, total_timesteps=5, eval_episodes=0), show_progress=False).run_dir
    with pytest.raises(UserError, match=r"dataset=\.\.\. is for a run whose dataset was passed in memory"):
        resume_training(run_dir, 9, dataset=arrays, show_progress=False)
    with pytest.raises(UserError, match=r"dataset_kind is memory: the dataset itself must be passed.*dataset=\.\.\.$"):
        rl_training.IQL("Pendulum-v1", dataset_kind="memory", output_dir=tmp_path).learn()
