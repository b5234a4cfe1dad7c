"""Models of Stable-Baselines3 that are damaged, hostile or of another kind: refused in one line, at no cost."""

from __future__ import annotations

import io
import os
import resource
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_files import GOLDEN, rezipped, saved, values, weights

from rl_training.cli.main import main
from rl_training.core.checks import UserError
from rl_training.deploy.sb3 import import_sb3
from rl_training.deploy.sb3.reading import _tensors

NAN, INF = float("nan"), float("inf")
BOUNDS = np.float32(-0.1), np.float32(0.1)
FIRST = "q_net__q_net__0__weight"
MEMORY = 2**30  # beyond what the process has when a case begins


TRPO = {
    "policy_class": {"__module__": "stable_baselines3.common.policies"},
    "batch_size": 128,
    "cg_max_steps": 15,
    "line_search_max_iter": 10,
}


def kwargs(**changes: Any) -> bytes:
    return values("dqn", policy_kwargs={"net_arch": [8, 6], **changes})


def rewritten(data: bytes, kind: int = zipfile.ZIP_STORED, old: bytes = b" ", new: bytes = b" ") -> bytes:
    """What torch.save wrote, with its members compressed or with another name in its pickle."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(file, "w", kind) as after:
        for name in before.namelist():
            member = before.read(name)
            after.writestr(name, member.replace(old, new) if name.endswith("data.pkl") else member)
    return file.getvalue()


def weight(value: Any) -> dict[str, Any]:
    return {"policy__pth": weights("dqn", **{FIRST: value})}


def also(**more: Any) -> dict[str, Any]:
    return {"policy__pth": weights("dqn", **more)}


def rebuilt(by: bytes) -> dict[str, Any]:
    """Weights that another function of torch rebuilds."""
    return {"policy__pth": rewritten(weights("dqn"), old=b"_rebuild_tensor_v2", new=by)}


def sizes(*shapes: tuple[int, int]) -> bytes:
    """A Q network with layers of these shapes (outputs, inputs)."""
    named = {f"q_net.q_net.{2 * i}": shape for i, shape in enumerate(shapes)}
    layers = {f"{name}.weight": torch.ones(shape) for name, shape in named.items()}
    return saved(layers | {f"{name}.bias": torch.ones(shape[0]) for name, shape in named.items()})


def views() -> bytes:
    """Many layers that are the same numbers."""
    stored = torch.zeros(100, 100)
    layers = {f"q_net.q_net.{i}.weight": stored for i in range(400)}
    return saved(layers | {f"q_net.q_net.{i}.bias": stored[0] for i in range(400)})


def large_pickle() -> bytes:
    return saved({f"q_net.q_net.{i}.weight" * 10: torch.zeros(0) for i in range(9000)})


PLAIN = "policy.pth must hold nothing but tensors, got 'torch._utils "
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
    # Tensors that are no weights.
    "NaN": (lambda: weight(torch.full((8, 4), NAN)), "'q_net.q_net.0.weight' has NaN or infinite numbers"),
    "too large for float32": (
        lambda: weight(torch.full((8, 4), 1e300, dtype=torch.float64)),
        "'q_net.q_net.0.weight' has NaN or infinite numbers",
    ),
    "complex": (
        lambda: weight(torch.zeros(8, 4, dtype=torch.complex64)),
        "'q_net.q_net.0.weight' must be dense floats, got torch.complex64",
    ),
    "integers": (lambda: weight(torch.zeros(8, 4, dtype=torch.int64)), "must be dense floats, got torch.int64"),
    "sparse": (lambda: weight(torch.zeros(8, 4).to_sparse()), PLAIN + "_rebuild_sparse_tensor'"),
    "quantised": (lambda: rebuilt(b"_rebuild_qtensor"), PLAIN + "_rebuild_qtensor'"),
    "converted": (  # which would copy an expanded one
        lambda: rebuilt(b"_rebuild_device_tensor_from_cpu_tensor"),
        PLAIN + "_rebuild_device_tensor_from_cpu_tensor'",
    ),
    "meta": (lambda: weight(torch.zeros(8, 4, device="meta")), PLAIN + "_rebuild_meta_tensor_no_storage'"),
    # More memory than the file has.
    "expanded": (
        lambda: weight(torch.zeros(1, 1).expand(60_000, 60_000)),
        "'q_net.q_net.0.weight' is of shape (60000, 60000), its file is smaller",
    ),
    "views": (lambda: {"policy__pth": views()}, "is of shape (100, 100), its file is smaller"),
    "layers that do not follow": (
        lambda: {"policy__pth": sizes((60_000, 4), (60_000, 1), (2, 60_000))},
        "a layer of q.net takes 1 inputs, not the 60000 before it",
    ),
    "inputs of another environment": (
        lambda: {"policy__pth": sizes((60_000, 0), (2, 60_000))},
        "q.net.layers.0.weight takes 0 inputs, an observation has 4",
    ),
    "compressed twice": (
        lambda: {"policy__pth": rewritten(weights("dqn"), zipfile.ZIP_DEFLATED)},
        "policy.pth must not be compressed, as torch.save writes it",
    ),
    "many tensors": (
        lambda: {"policy__pth": saved({str(i): torch.zeros(0) for i in range(1001)})},
        "policy.pth has 1001 tensors, at most 1000 are expected",
    ),
    "large pickle": (lambda: {"policy__pth": large_pickle()}, "policy.pth describes its tensors in "),
    # Values.
    "steps": (lambda: {"data": values("dqn", num_timesteps=10**30)}, "num_timesteps must be >= 0 and < "),
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


def test_what_is_loaded_is_what_was_checked() -> None:
    """In these files torch finds other tensors than zipfile: of the first archive, or before it."""
    first, second = (saved({name: torch.zeros(3)}) for name in "ab")
    older = io.BytesIO()
    torch.save({"a": torch.zeros(3)}, older, _use_new_zipfile_serialization=False)
    for data in (first + second, older.getvalue() + second):
        assert _tensors(data, Path("model.zip"), "policy.pth").keys() == {"b"}


def test_critics_that_differ(tmp_path: Path, refused: Refused) -> None:
    shorter = weights("td3", critic__qf1__4__weight=None, critic__qf1__4__bias=None)
    path = rezipped("td3", tmp_path, policy__pth=shorter)
    refused([path, "--env", "Pendulum-v1"], "the members of critic.net differ in their layers")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("sac", {"actor__log_std__weight": torch.zeros(1, 5)}, "actor.mu is (1, 6), actor.log_std (1, 5)"),
        ("ppo-numbers", {"log_std": torch.zeros(())}, "its 1 actions do not fit the 1 of the environment"),
    ],
)
def test_last_layers(name: str, changes: dict[str, Any], message: str, tmp_path: Path, refused: Refused) -> None:
    path = rezipped(name, tmp_path, policy__pth=weights(name, **changes))
    refused([path, "--env", "Pendulum-v1"], message)


def test_actions_beyond_float32(tmp_path: Path) -> None:
    """Actions are divided by the bounds of the environment."""
    path = rezipped(
        "ppo-numbers", tmp_path, policy__pth=weights("ppo-numbers", action_net__bias=torch.full((1,), 3e38))
    )
    with pytest.raises(UserError, match=r"its action_net gives infinite actions in Box\("):
        import_sb3(path, lambda: gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), *BOUNDS))


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


@pytest.mark.parametrize("member", ["data", "policy.pth", "pytorch_variables.pth"])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (zipfile.ZIP_STORED, "is damaged (Bad CRC-32"),
        (zipfile.ZIP_DEFLATED, "is damaged (Error -3 while decompressing data"),
        (zipfile.ZIP_LZMA, "is damaged (neither stored nor deflated)"),
        (zipfile.ZIP_BZIP2, "is damaged (neither stored nor deflated)"),
    ],
)
def test_damaged_archives(kind: int, message: str, member: str, tmp_path: Path, refused: Refused) -> None:
    path = zipped(tmp_path / "model.zip", kind, member, os.urandom(300))
    refused([path, "--env", "CartPole-v1"], message)


def test_a_small_file_is_not_unpacked_to_a_large_one(tmp_path: Path, refused: Refused) -> None:
    path = zipped(tmp_path / "model.zip", zipfile.ZIP_DEFLATED, "policy.pth", bytes(10**8), damage=False)
    limit = 100 * path.stat().st_size
    assert limit < 10**8
    refused([path, "--env", "CartPole-v1"], f"policy.pth has more than {limit} bytes")


def test_a_pipe_is_not_opened(tmp_path: Path, refused: Refused) -> None:
    os.mkfifo(tmp_path / "model.zip")
    refused([tmp_path / "model.zip", "--env", "CartPole-v1"], "model.zip: not a regular file")


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
