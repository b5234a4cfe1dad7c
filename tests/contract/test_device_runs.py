"""Training on environments that run on a device: it learns, resumes exactly and copies nothing to the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import one_of_a_kind

from rl_training import DQN
from rl_training.checkpoint.read import load_checkpoint
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.workflows import evaluate_checkpoint, record_checkpoint

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")],
    ),
]
TASKS = {"dqn": "torch/CartPole-v1", "sac": "torch/Pendulum-v1"}


class StopAt(Callback):
    def on_step(self, session: Any) -> bool:
        return session.step < 2600


def config(algo: str, folder: Path, device: str = "cpu", **changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {"learning_starts": 512, "train_frequency": 64}
    settings |= {"gradient_updates_per_step": 4, "hidden_sizes": [32, 32]}
    if algo == "sac":
        settings["normalize_observations"] = True
    values = {
        "total_timesteps": 4500,
        "num_envs": 64,
        "log_interval": 1000,
        "checkpoint_interval": 1500,
        "eval_episodes": 2,
        "video": False,
        "report": False,
        "compile": "off",
        "threads": 1,
    }
    settings |= changes.pop("settings", {})
    values |= {"output_dir": folder, "device": device, "algo_kwargs": settings, **changes}
    return TrainConfig(algo, TASKS[algo], **values)


def tensors(result: Any) -> dict[str, torch.Tensor]:
    found = load_checkpoint(result.checkpoint_path)
    files = [name for name in found.files if name.endswith(".safetensors") and not name.startswith("replay_")]
    return {f"{file}:{name}": one for file in files for name, one in found.tensors(file).items()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("algo", one_of_a_kind("dqn", among=TASKS))
def test_resume_on_a_device_environment_is_exact(algo: str, device: str, tmp_path: Path) -> None:
    whole = train(config(algo, tmp_path / "whole", device), show_progress=False)
    stopped = train(config(algo, tmp_path / "cut", device), callbacks=StopAt(), show_progress=False)
    resumed = resume_training(stopped.run_dir, show_progress=False)
    expected, found = tensors(whole), tensors(resumed)
    assert "device_environments.safetensors:physics" in expected and expected.keys() == found.keys()
    assert [name for name in expected if not torch.equal(expected[name], found[name])] == []
    rows = [(run.run_dir / "metrics.jsonl").read_text().count("\n") for run in (whole, resumed)]
    assert rows[0] == rows[1] > 4


@pytest.mark.sweep
def test_seeds_of_a_device_environment_are_the_seeds_alone(tmp_path: Path) -> None:
    together = train(config("dqn", tmp_path / "a", seeds=(3, 5)), show_progress=False)
    alone = train(config("dqn", tmp_path / "b", seed=5), show_progress=False)
    agents = [result.run_dir / "agents" / "seed_5_final.safetensors" for result in (together, alone)]
    assert load_tensors(agents[0]) == load_tensors(agents[1])


def load_tensors(path: Path) -> dict[str, bytes]:
    from safetensors.numpy import load_file

    return {name: array.tobytes() for name, array in load_file(path).items()}


@pytest.mark.sweep
def test_it_learns_and_is_evaluated_on_its_twin(tmp_path: Path) -> None:
    settings = {"gradient_updates_per_step": 8, "hidden_sizes": [256, 256]}
    result = train(config("dqn", tmp_path, total_timesteps=20_000, settings=settings), show_progress=False)
    found = evaluate_checkpoint(result.checkpoint_path, num_episodes=10)
    assert found["eval_return_mean"] > 100, "a random policy gets 22"
    path, returns = record_checkpoint(result.checkpoint_path, tmp_path / "video.gif")
    assert path.stat().st_size > 1000 and returns[0] > 50


@pytest.mark.parametrize(
    ("env_id", "changes", "message"),
    [
        ("torch/CartPole-v2", {}, r"environment 'torch/CartPole-v2' does not exist; did you mean torch/CartPole-v1\?"),
        ("torch/CartPole-v1", {"env_kwargs": {"gravity": 5}}, "env_kwargs must be empty for torch/CartPole-v1"),
    ],
)
def test_what_a_device_environment_does_not_have_is_rejected(
    env_id: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=message):
        DQN(env_id, output_dir=tmp_path, **changes).learn(100, show_progress=False)
    assert list(tmp_path.iterdir()) == []


class NoHostCopies(Callback):
    """From the second log interval on, an operation that waits for the GPU raises, but for log intervals themselves.

    `on_step` comes before the row of its own step: the mode must fit the rest of this step and most of the next.
    """

    def __init__(self) -> None:
        self.steps = 0

    def on_step(self, session: Any) -> None:
        clock, due = session.clock, []
        for what in (clock.log, clock.evaluate, clock.checkpoint):
            following = clock.step + session.config.num_envs
            due += [clock.is_due(what), what.passed(clock.step, following)]
        warm = session.gradient_steps > 0 and clock.step > session.config.log_interval
        quiet = warm and not any(due) and clock.step + session.config.num_envs < clock.total
        self.steps += quiet
        torch.cuda.set_sync_debug_mode("error" if quiet else "default")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", ["off", "on"])
@pytest.mark.parametrize("algo", TASKS)
def test_nothing_visits_the_host_between_log_intervals(algo: str, compiled: str, tmp_path: Path) -> None:
    changes = {"num_envs": 4096, "total_timesteps": 4096 * 40, "log_interval": 4096 * 10}
    changes |= {"checkpoint_interval": 10**6, "eval_interval": 10**6}
    settings = {"train_frequency": 4096, "learning_starts": 4096}
    asked = config(algo, tmp_path, "cuda", compile=compiled, eval_episodes=0, settings=settings, **changes)
    watch = NoHostCopies()
    try:
        result = train(asked, callbacks=watch, show_progress=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert watch.steps >= 20 and result.metrics["gradient_steps"] == 39 * 4


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_host_copy_is_noticed(tmp_path: Path) -> None:
    class Look(Callback):
        def on_step(self, session: Any) -> None:
            if torch.cuda.get_sync_debug_mode():
                float(session.envs.obs[0, 0])

    asked = config("dqn", tmp_path, "cuda", eval_episodes=0)
    try:
        with pytest.raises(RuntimeError, match="synchronizing"):
            train(asked, callbacks=[NoHostCopies(), Look()], show_progress=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
