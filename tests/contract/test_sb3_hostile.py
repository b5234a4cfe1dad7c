"""Models of Stable-Baselines3 that are damaged, hostile or of another kind: refused in one line, at no cost."""

from __future__ import annotations

import io
import os
import resource
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sb3_files import GOLDEN, rezipped, values, weights

from rl_training.cli.main import main
from rl_training.deploy.sb3 import import_sb3

NAN, INF = float("nan"), float("inf")
MEMORY = 2**30  # beyond what the process has when a case begins
TRPO = {
    "policy_class": {"__module__": "stable_baselines3.common.policies"},
    "batch_size": 128,
    "cg_max_steps": 15,
    "line_search_max_iter": 10,
}


def kwargs(**changes: Any) -> bytes:
    return values("dqn", policy_kwargs={"net_arch": [8, 6], **changes})


def also(**more: Any) -> dict[str, Any]:
    return {"policy__pth": weights("dqn", **more)}


CASES: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    # Networks that the imported agent would not have.
    "extractor": (
        lambda: also(q_net__features_extractor__0__weight=torch.eye(4)),
        "its policy has 'q_net.features_extractor.0.weight'; only dense policies are supported",
    ),
    "extractor without weights": (
        lambda: {"data": kwargs(features_extractor_class="<class 'mine.Squares'>")},
        "features_extractor_class is not supported, got \"<class 'mine.Squares'>\"",
    ),
    "activation of one's own": (
        lambda: {"data": kwargs(activation_fn="<class 'mine.ReLU'>")},
        "activation_fn must be a class of torch.nn, got \"<class 'mine.ReLU'>\"",
    ),
    "further layer": (lambda: also(q_net__norm__weight=torch.ones(4)), "its policy has 'q_net.norm.weight'"),
    "number of another script": (
        lambda: also(**{"q_net__q_net__\u00b2__weight": torch.ones(1, 1)}),
        "its policy has 'q_net.q_net.\u00b2.weight'",
    ),
    "number of 5,000 digits": (
        lambda: also(**{f"q_net__q_net__{'1' * 5000}__weight": torch.ones(1, 1)}),
        "its policy has 'q_net.q_net.111",
    ),
    "TRPO": (lambda: {"data": values("dqn", **TRPO)}, "TRPO is not supported; supported: SAC, TD3, DQN, PPO, A2C,"),
}


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A process that cannot take much more memory than it has."""
    before, statm = resource.getrlimit(resource.RLIMIT_AS), Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("the memory of a process is read from /proc")
    used = int(statm.read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


class Refused:
    """Imports a file that must be refused in one line, and leave nothing."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.output, self.capsys = tmp_path / "agent.safetensors", capsys

    def __call__(self, words: list[Any], message: str) -> None:
        assert main(["import", "sb3", *map(str, words), "-o", str(self.output)]) == 2
        lines = self.capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and message in lines[0], lines
        assert not self.output.exists()


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], little_memory: None) -> Refused:
    return Refused(tmp_path, capsys)


@pytest.mark.parametrize("name", CASES)
def test_weights_and_values(name: str, tmp_path: Path, refused: Refused) -> None:
    build, message = CASES[name]
    path = rezipped("dqn", tmp_path, **build())
    assert path.stat().st_size < 10**7
    refused([path, "--env", "CartPole-v1"], message)


def test_a_setting_of_ppo_alone_does_not_stop_a2c(tmp_path: Path) -> None:
    path = rezipped("ppo-choices", tmp_path, data=values("ppo-choices", clip_range=None, batch_size=128))
    assert import_sb3(path, "CartPole-v1").config.algo == "a2c"


def zipped(path: Path, kind: int, name: str, content: bytes, damage: bool = True) -> Path:
    """An archive with a member that is damaged in its middle, and the other members of a model."""
    with zipfile.ZipFile(GOLDEN / "dqn.zip") as old, zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr(name, content)
        for other in old.namelist():
            if other != name:
                archive.writestr(other, old.read(other))
        info = archive.getinfo(name)
    data = bytearray(path.read_bytes())
    start = info.header_offset + 30 + len(name)
    if damage:
        data[start : start + info.compress_size] = b"\xff" * info.compress_size
    path.write_bytes(data)
    return path


STATISTICS: dict[str, Any] = {"mean": np.zeros(3), "var": np.ones(3), "count": 10.0, "epsilon": 1e-8, "clip_obs": 10.0}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"count": INF}, "count must be >= 0 and < 9007199254740992, got inf"),
    ({"count": NAN}, "count must be >= 0"),
    ({"count": -1.0}, "count must be >= 0"),
    ({"count": 1e30}, "count must be >= 0"),
    ({"epsilon": INF}, "epsilon must be >= 0, got inf"),
    ({"epsilon": -1.0, "var": np.zeros(3)}, "epsilon must be >= 0, got -1"),
    ({"epsilon": NAN}, "epsilon must be >= 0, got nan"),
    ({"epsilon": 0.0, "var": np.zeros(3)}, "var + epsilon must be > 0"),
    ({"epsilon": 0.0, "var": np.full(3, 1e-80)}, "var + epsilon must be > 0"),
    ({"var": np.array([1, 1, NAN])}, "mean and var must be finite in float32, var >= 0"),
    ({"var": np.array([1, 1, INF])}, "mean and var must be finite in float32, var >= 0"),
    ({"var": np.array([1, 1, -1.0])}, "mean and var must be finite in float32, var >= 0"),
    ({"mean": np.full(3, 1e300)}, "mean and var must be finite in float32, var >= 0"),
    ({"mean": np.zeros(4)}, "mean must be 3 numbers, got an array of shape (4,)"),
    ({"mean": np.zeros(10**8)}, "mean must be 3 numbers, got an array of shape (100000000,)"),
    ({"mean": np.zeros(3, np.complex64)}, "'mean' has elements of type"),
    ({"clip_obs": np.zeros(2)}, "clip_obs must be 1 numbers, got an array of shape (2,)"),
    ({"clip_obs": 5.0}, "clip_obs must be 10, which is fixed here, got 5"),
    ({"var": None}, "must be an .npz file with mean, var and count, it has no var"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_statistics(changes: dict[str, Any], message: str, tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "stats.npz"
    np.savez_compressed(path, **{key: one for key, one in (STATISTICS | changes).items() if one is not None})
    refused([GOLDEN / "ppo-normalized.zip", "--env", "Pendulum-v1", "--normalization", path], message)


def test_damaged_statistics(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "stats.npz"
    words = [GOLDEN / "ppo-normalized.zip", "--env", "Pendulum-v1", "--normalization", path]
    zipped(path, zipfile.ZIP_DEFLATED, "mean.npy", os.urandom(300))
    refused(words, "'mean' is damaged (Error -3 while decompressing data")
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    zipped(path, zipfile.ZIP_STORED, "mean.npy", file.getvalue().replace(b"{'descr'", b"{'descr\n"), damage=False)
    refused(words, "'mean' has a header that numpy does not write")
    path.write_bytes(b"PK" + os.urandom(300))
    refused(words, "stats.npz: not an npz file (")
