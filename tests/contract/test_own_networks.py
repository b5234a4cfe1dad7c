"""Runs with networks, features and schedules of the user's own, and with images beside vectors, keep every promise."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dict_envs  # noqa: F401  (registers AnySpaces-v0)
import numpy as np
import own_networks as own
import pytest
import torch
from resume_harness import whole_and_cut
from seed_harness import assert_same_bits, saved_arrays

import rl_training
from rl_training.cli import main
from rl_training.config.objects import python_objects
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.run.resume import resume_training
from rl_training.run.run import train

QUICK = {"total_timesteps": 90, "eval_episodes": 1, "eval_interval": 40, "video": False, "report": False,
         "checkpoint_interval": 30, "log_interval": 30}  # fmt: skip
SETTINGS = {"learning_starts": 20, "batch_size": 8, "hidden_sizes": [16], "buffer_capacity": 64}
OWN = {"network": {"actor": own.BatchNormNet, "critic": own.BatchNormNet, "features": own.Features},
       "learning_rate_schedule": own.halving}  # fmt: skip
OPTIONS = {"network": {"layer_norm": True, "dropout": 0.2, "spectral_norm": True, "activation": "SiLU"},
           "optimizer": {"name": "RMSprop", "momentum": 0.5, "centered": True}, "learning_rate_schedule": "cosine",
           "learning_rate_warmup": 0.5}  # fmt: skip
TASKS: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "own": ("sac", "Pendulum-v1", OWN, {}),
    "options": ("sac", "Pendulum-v1", OPTIONS, {}),
    "discrete": ("dqn", "CartPole-v1", {"network": {"critic": own.BatchNormNet}, "optimizer": "RAdam"}, {}),
    "mixed": ("sac", "AnySpaces-v0", {}, {"observation": "mixed", "action": "box"}),
    "mixed own": ("dqn", "AnySpaces-v0", {"network": {"features": own.DictFeatures}}, {"observation": "mixed"}),
    "two images": ("dqn", "AnySpaces-v0", {"normalize_observations": False}, {"observation": "two images"}),
    "image": ("td3", "AnySpaces-v0", {}, {"observation": "one image", "action": "box"}),
}


def config(path: Path, task: str, **changes: Any) -> TrainConfig:
    algo, env_id, settings, kwargs = TASKS[task]
    values: dict[str, Any] = {**QUICK, **changes}
    return TrainConfig(algo, env_id, output_dir=path, algo_kwargs={**SETTINGS, **settings}, env_kwargs=kwargs, **values)


def objects_of(task: str) -> dict[str, Any]:
    return python_objects(TASKS[task][2])


DEFAULT = ("own",)  # the others: `make test-all`
EVERY = [pytest.param(task, marks=() if task in DEFAULT else pytest.mark.sweep) for task in TASKS]


@pytest.mark.sweep
@pytest.mark.parametrize("task", EVERY)
def test_resume_of_a_cut_run_has_the_same_bits(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = config(Path("runs"), task, seeds=(0, 7), num_envs=2)
    start = partial(train, made, None, show_progress=False)
    assert whole_and_cut(start, 53, tmp_path, monkeypatch, objects=objects_of(task)) == []


@pytest.mark.sweep
@pytest.mark.parametrize("task", [pytest.param("options", marks=pytest.mark.sweep), "mixed"])
def test_a_seed_among_others_is_the_seed_alone(task: str, tmp_path: Path) -> None:
    together = train(config(tmp_path / "together", task, seeds=(4, 2)), show_progress=False)
    alone = train(config(tmp_path / "alone", task, seeds=(2,)), show_progress=False)
    assert_same_bits(saved_arrays(together, 1), saved_arrays(alone, 0))


def test_an_agent_with_own_networks_in_python(tmp_path: Path) -> None:
    agent = rl_training.SAC("Pendulum-v1", output_dir=tmp_path, **QUICK, **SETTINGS, **OWN).learn()
    assert agent.evaluate(num_episodes=1)["eval_episodes"] == 1
    obs = np.array([[0.1, 0.2, 0.3], [1.0, 0.0, -3.0]], np.float32)
    expected, file = agent.predict(obs), agent.save(tmp_path / "agent.safetensors")
    with pytest.raises(UserError, match=r"network\.\w+ is 'own_networks:\w+', a class or function, which is never"):
        rl_training.SAC.load(file)
    for load in (rl_training.SAC.load, rl_training.load):
        assert np.array_equal(load(file, **OWN).predict(obs), expected)
    with pytest.raises(UserError, match="its tensors do not fit its configuration"):
        smaller = {**OWN["network"], "features": lambda spec: own.nn.Linear(3, 7)}
        rl_training.SAC.load(file, objects={**objects_of("own"), "network": smaller})
    again = rl_training.SAC.load(agent.run_dir, objects=objects_of("own")).learn(30, show_progress=False)
    assert again.result.metrics["global_step"] == 120


def test_a_run_with_own_networks_records_its_video(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = config(tmp_path, "own", video=True)
    made = replace(made, env_kwargs={"max_episode_steps": 5}, total_timesteps=60, eval_interval=30)
    result = train(made, show_progress=False)
    assert "no video" not in capsys.readouterr().err
    assert (result.run_dir / "video.webm").stat().st_size > 500


def test_the_command_line_imports_what_it_names_and_no_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(own.__file__).parent)

    def run(*words: str) -> tuple[int, str]:
        status = main([*words])
        return status, capsys.readouterr().err

    quick = ["--total-timesteps", "60", "--eval-episodes", "1", "--quiet", "--output-dir", str(tmp_path / "runs"),
             "--set", "learning_starts=20", "--set", "hidden_sizes=[16]", "--set", "batch_size=8",
             "--set", "video=false", "--set", "report=false"]  # fmt: skip
    named = ["--object", "network.features=own_networks:Features"]
    assert run("train", "sac", "Pendulum-v1", *quick, *named)[0] == 0
    run_dir = next((tmp_path / "runs").iterdir())
    assert "features: own_networks:Features" in (run_dir / "config.yaml").read_text()
    status, message = run("evaluate", str(run_dir), "--num-episodes", "1")
    assert status == 2 and len(message.splitlines()) == 1
    assert "network.features is 'own_networks:Features'" in message and "pass it with --object" in message
    assert run("evaluate", str(run_dir), "--num-episodes", "1", *named)[0] == 0
    assert run("resume", str(run_dir), "--total-timesteps", "80", "--quiet", *named)[0] == 0
    monkeypatch.delitem(sys.modules, "own_networks")
    status, message = run("train", "--config", str(run_dir / "config.yaml"), *quick)  # a file names it
    assert status == 2 and "network.features is 'own_networks:Features'" in message
    assert "own_networks" not in sys.modules


def test_a_schedule_that_is_not_passed_again_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    settings = {**SETTINGS, "learning_rate_schedule": own.halving}
    made = TrainConfig("sac", "Pendulum-v1", output_dir=tmp_path, algo_kwargs=settings, **QUICK)
    result = train(made, show_progress=False)
    before = (result.run_dir / "run.json").read_bytes()
    with pytest.raises(UserError, match="learning_rate_schedule is 'own_networks:halving'"):
        resume_training(result.run_dir, total_timesteps=200, show_progress=False)
    assert (result.run_dir / "run.json").read_bytes() == before


@pytest.mark.parametrize("place", ["actor", "features"])
def test_a_batch_norm_needs_two_rows(place: str, tmp_path: Path) -> None:
    def normalised(inputs: Any, outputs: int = 4) -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Linear(getattr(inputs, "size", inputs), outputs), torch.nn.BatchNorm1d(outputs)
        )

    agent = rl_training.SAC("Pendulum-v1", output_dir=tmp_path, batch_size=1, network={place: normalised})
    with pytest.raises(UserError, match="batch_size must be >= 2 with batch normalisation, got 1"):
        agent.learn(show_progress=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("network.feature=a:B", "an object must be one of network.features, network.actor, network.critic, "),
        ("network.features=Features", "network.features must be given as network.features=module:Name"),
        ("network.features=no_such_module:B", "network.features: module no_such_module cannot be imported: Module"),
        ("network.features=own_networks:Nothing", "module own_networks has no class or function 'Nothing'"),
    ],
)
def test_an_object_that_is_not_there(given: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "own_networks" in sys.modules
    assert main(["train", "sac", "Pendulum-v1", "--object", given]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
