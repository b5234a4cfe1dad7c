"""Models of Stable-Baselines3 as agents here: equal predictions, and nothing in a file is executed."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from harness import ROOT
from sb3_files import GOLDEN, rezipped

import rl_training
from rl_training.cli.errors import report_error
from rl_training.cli.main import main
from rl_training.core.checks import UserError
from rl_training.core.signals import StopSignals
from rl_training.deploy.sb3 import import_sb3
from rl_training.run.agent import load_agent

ACTIONS: dict[str, spaces.Space[Any]] = {
    "multi_binary": spaces.MultiBinary(3),
    "multi_discrete": spaces.MultiDiscrete([3, 2]),
}


class Switches(gym.Env[Any, Any]):
    """The spaces of the environment with which the models were made (`scripts/sb3_golden.py`)."""

    def __init__(self, action: str) -> None:
        self.observation_space, self.action_space = spaces.Box(-1, 1, (2, 2), np.float32), ACTIONS[action]


ENVIRONMENTS: dict[str, Any] = {
    **dict.fromkeys(("sac", "td3", "tqc", "ppo-numbers", "ppo-normalized"), "Pendulum-v1"),
    **dict.fromkeys(("dqn", "qr_dqn", "ppo-choices"), "CartPole-v1"),
    "ppo-binary": lambda: Switches("multi_binary"),
    "ppo-multi": lambda: Switches("multi_discrete"),
}


def imported(name: str, folder: Path = GOLDEN) -> Any:
    stats = folder / f"{name}-stats.npz"
    return import_sb3(folder / f"{name}.zip", ENVIRONMENTS[name], stats if stats.exists() else None)


def check_predictions(folder: Path, name: str, tmp_path: Path) -> Any:
    agent = load_agent(imported(name, folder).save(tmp_path / "agent.safetensors"))
    with np.load(folder / f"{name}-predictions.npz") as golden:
        obs, actions = golden["obs"], golden["actions"]
    found = agent.predict(obs)
    assert agent.config.algo == name.partition("-")[0]
    assert len(np.unique(actions)) > 1, "the actions depend on the observations"
    if actions.dtype.kind == "f":
        assert np.abs(found - actions).max() <= 1e-5
    else:
        assert np.array_equal(found, actions)
    return agent


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_predictions_equal_the_originals(name: str, tmp_path: Path) -> None:
    check_predictions(GOLDEN, name, tmp_path)


@pytest.mark.sweep
def test_files_of_the_installed_package(tmp_path: Path) -> None:
    """Whole files, as the package writes them, where it is installed beside torch."""
    if importlib.util.find_spec("stable_baselines3") is None or importlib.util.find_spec("sb3_contrib") is None:
        pytest.skip("stable-baselines3 and sb3-contrib are not installed")
    import subprocess
    import sys

    subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "sb3_golden.py"), str(tmp_path / "made"), "--whole"], check=True
    )
    for name in ENVIRONMENTS:
        check_predictions(tmp_path / "made", name, tmp_path)


@pytest.mark.sweep
def test_an_imported_agent_is_evaluated_and_trained_further(tmp_path: Path) -> None:
    path = imported("td3").save(tmp_path / "agent.safetensors")
    changes = {
        "output_dir": tmp_path,
        "total_timesteps": 60,
        "learning_starts": 20,
        "batch_size": 8,
        "eval_episodes": 1,
    }
    agent = rl_training.load(path, **changes, video=False, report=False, compile="off")
    assert agent.evaluate(1)["eval_episodes"] == 1
    agent.learn(show_progress=False)
    assert agent.learner.update_count > 0


class Evil:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder / "executed"),)


def test_a_hostile_file_executes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = Evil(tmp_path)
    saved, legacy = io.BytesIO(), pickle.dumps(evil)
    torch.save({"actor.mu.0.weight": evil}, saved)
    with zipfile.ZipFile(GOLDEN / "td3.zip") as archive:
        data = json.loads(archive.read("data"))
    import base64

    data["policy_class"][":serialized:"] = data["policy_kwargs"][":serialized:"] = base64.b64encode(legacy).decode()
    for member in (saved.getvalue(), legacy):
        with pytest.raises(UserError, match=r"policy.pth must hold nothing but tensors"):
            import_sb3(rezipped("td3", tmp_path, policy__pth=member), "Pendulum-v1")
        with pytest.raises(UserError, match=r"pytorch_variables.pth must hold nothing but tensors"):
            import_sb3(rezipped("td3", tmp_path, pytorch_variables__pth=member), "Pendulum-v1")
    import_sb3(rezipped("td3", tmp_path, data=json.dumps(data).encode()), "Pendulum-v1")  # its pickles are not read
    stats = tmp_path / "vecnormalize.pkl"
    stats.write_bytes(legacy)
    with pytest.raises(UserError, match="loading a pickle runs code") as caught:
        import_sb3(GOLDEN / "ppo-normalized.zip", "Pendulum-v1", stats)
    assert len(str(caught.value).splitlines()) == 4  # the reason, and three lines that convert it
    report_error(caught.value, {}, StopSignals())
    reason, *code = capsys.readouterr().err.splitlines()
    assert reason.startswith("error: ") and "".join(code).startswith("vec = ")  # as it can be copied
    for line in code:
        compile(line, "converting", "exec")
    np.savez(tmp_path / "objects.npz", mean=np.array([evil], dtype=object), var=np.ones(3))
    with pytest.raises(UserError, match="contains Python objects, which are never loaded"):
        import_sb3(GOLDEN / "ppo-normalized.zip", "Pendulum-v1", tmp_path / "objects.npz")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "env", "files", "message"),
    [
        ("td3", "CartPole-v1", {}, "a td3 agent does not fit"),
        (
            "td3",
            "MountainCarContinuous-v0",
            {},
            r"its weights do not fit MountainCarContinuous-v0: actor.net.layers.0.weight",
        ),
        ("dqn", "Acrobot-v1", {}, "its weights do not fit Acrobot-v1"),
        ("dqn", "NoSuchEnv-v0", {}, "NoSuchEnv"),
        ("dqn", "CartPole-v1", {"data": None}, "it has no data"),
        ("dqn", "CartPole-v1", {"data": b"{"}, "not valid JSON"),
        ("dqn", "CartPole-v1", {"data": b"[]"}, "its data is no JSON object"),
        ("dqn", "CartPole-v1", {"data": b"{}"}, "a policy of '' is not supported"),
        ("dqn", "CartPole-v1", {"policy__pth": b"x"}, "must hold nothing but tensors"),
    ],
)
def test_models_that_do_not_fit(name: str, env: str, files: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message) as caught:
        import_sb3(rezipped(name, tmp_path, **files), env)
    assert "\n" not in str(caught.value)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "import",
        "sb3",
        str(GOLDEN / "sac.zip"),
        "--env",
        "Pendulum-v1",
        "-o",
        str(tmp_path / "agent.safetensors"),
    ]
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["algorithm"] == "sac" and answer["sha256"] == load_agent(answer["agent"]).digest()
    (tmp_path / "text.zip").write_text("text")
    assert main(["import", "sb3", str(tmp_path / "text.zip"), *words[3:]]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_model_is_not_overwritten_by_its_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = rezipped("sac", tmp_path)
    before = model.read_bytes()
    words = [
        "import",
        "sb3",
        str(model),
        "--env",
        "Pendulum-v1",
        "-o",
        str(tmp_path / ".." / tmp_path.name / model.name),
    ]
    assert main(words) == 2 and model.read_bytes() == before
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and "is imported and would be overwritten" in errors[0]
    (loop := tmp_path / "loop").symlink_to("loop")
    assert main(["import", "sb3", str(loop), "--env", "Pendulum-v1", "-o", str(tmp_path / "agent")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
