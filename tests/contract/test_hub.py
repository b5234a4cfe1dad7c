"""Agents on a hub: what is pushed, what is pulled, and what is rejected; the hub is a stand-in on this machine."""

from __future__ import annotations

import errno
import hashlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import own_networks
import pytest
from fresh_agents import fresh_agent, saved
from hub_stand_in import Hub

from rl_training.cli.main import main
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.deploy.hub import push_agent, sharing
from rl_training.deploy.hub.card import shared_config
from rl_training.run.agent import load_agent

pytest.importorskip("huggingface_hub")
REPO = "me/pendulum-agent"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    server = Hub()
    yield server
    server.close()


@pytest.fixture(scope="module")
def agent_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(fresh_agent("td3"), tmp_path_factory.mktemp("agent"))


def push(hub: Hub, agent_file: Path, *words: str) -> None:
    given = ["--endpoint", hub.url, "--num-episodes", "2", "--no-video", *words]
    assert main(["push", str(agent_file), REPO, *given]) == 0


def test_push_and_pull(hub: Hub, agent_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    push(hub, agent_file)
    assert f"pushed {hub.url}/{REPO}" in capsys.readouterr().out
    files = hub.repos[REPO]
    assert set(files) == {"agent.safetensors", "config.yaml", "results.json", "README.md", "manifest.json"}
    results = json.loads(files["results.json"])
    card = files["README.md"].decode()
    assert card.startswith("---\nlibrary_name: rl-training") and "## How it was measured" in card
    assert f"{results['eval_return_mean']:.2f}" in card and "2 fresh episodes with the greedy policy" in card
    assert len(results["eval_returns"]) == 2 and b"algo: td3" in files["config.yaml"]
    hub.repos[REPO]["evil.py"] = b"raise SystemExit"  # what a manifest does not name is not downloaded

    assert main(["pull", REPO, "-o", str(tmp_path / "pulled"), "--endpoint", hub.url]) == 0
    pulled, original = load_agent(tmp_path / "pulled" / "agent.safetensors"), load_agent(agent_file)
    assert pulled.predict([0.1, 0.2, 0.3]).tolist() == original.predict([0.1, 0.2, 0.3]).tolist()
    assert not any("evil" in one for one in hub.requests)
    assert {one.name for one in (tmp_path / "pulled").iterdir()} == set(files) - {"evil.py"}
    for name, digest in json.loads((tmp_path / "pulled" / "manifest.json").read_text())["files"].items():
        assert hashlib.sha256((tmp_path / "pulled" / name).read_bytes()).hexdigest() == digest


@pytest.mark.sweep
def test_a_video_is_shared(hub: Hub, agent_file: Path) -> None:
    assert main(["push", str(agent_file), REPO, "--endpoint", hub.url, "--num-episodes", "0"]) == 0
    assert len(hub.repos[REPO]["replay.mp4"]) > 1000
    assert "It was not evaluated" in hub.repos[REPO]["README.md"].decode()


def test_an_agent_with_an_own_network_is_pushed_and_pulled(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = fresh_agent("td3", network={"actor": own_networks.BatchNormNet})
    push_agent(agent, REPO, episodes=1, video=False, endpoint=hub.url)
    assert b"actor: own_networks:BatchNormNet" in hub.repos[REPO]["config.yaml"]
    pull = ["pull", REPO, "-o", str(tmp_path / "pulled"), "--endpoint", hub.url]
    assert main(pull) == 2 and "own_networks:BatchNormNet" in capsys.readouterr().err
    assert main([*pull, "--object", "network.actor=own_networks:BatchNormNet"]) == 0
    objects = {"network": {"actor": own_networks.BatchNormNet}}
    pulled = load_agent(tmp_path / "pulled" / "agent.safetensors", objects=objects)
    assert pulled.predict([0.1, 0.2, 0.3]).tolist() == agent.predict([0.1, 0.2, 0.3]).tolist()


def test_paths_of_this_machine_are_not_shared(hub: Hub, tmp_path: Path) -> None:
    agent = fresh_agent("td3")
    object.__setattr__(agent.config, "output_dir", tmp_path / "secret-folder")
    push(hub, saved(agent, tmp_path))
    assert not any(b"secret-folder" in one for one in hub.repos[REPO].values())


@pytest.mark.parametrize(
    ("given", "shared"),
    [
        ({"dataset_path": "/secret/a.npz"}, {"dataset_path": "a.npz"}),
        ({"dataset_path": ["/secret/a.npz", "mujoco/hopper/expert-v0"]},
         {"dataset_path": ["a.npz", "mujoco/hopper/expert-v0"]}),
        ({"dataset_path": (Path("/secret/a.npz"),)}, {"dataset_path": ["a.npz"]}),
        ({"dataset_agent": "/secret/run"}, {"dataset_agent": "run"}),
        ({"dataset_agent": "agents/pendulum.safetensors"}, {"dataset_agent": "agents/pendulum.safetensors"}),
        ({"dataset_path": None}, {"dataset_path": None}),
    ],
)  # fmt: skip
def test_folders_of_datasets_are_not_shared(given: dict[str, Any], shared: dict[str, Any]) -> None:
    assert shared_config(TrainConfig("iql", "Pendulum-v1", algo_kwargs=given)).algo_kwargs == shared


def test_files_of_the_user_are_not_overwritten(hub: Hub, agent_file: Path, tmp_path: Path, capsys: Any) -> None:
    push(hub, agent_file)
    pull = ["pull", REPO, "--endpoint", hub.url, "-o"]
    (tmp_path / "README.md").write_text("mine")
    assert main([*pull, str(tmp_path)]) == 2
    assert f"{tmp_path / 'README.md'}: would be overwritten" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["README.md"] and not any("GET" in one for one in hub.requests)
    for _ in range(2):  # its own files may be
        assert main([*pull, str(tmp_path / "pulled")]) == 0


def test_a_file_that_is_too_large_is_not_downloaded(
    hub: Hub, agent_file: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(hub, agent_file)
    monkeypatch.setattr(sharing, "MAX_FILE_BYTES", 1000)
    assert main(["pull", REPO, "-o", str(tmp_path / "x"), "--endpoint", hub.url]) == 2
    assert "bytes, at most 1000 are expected" in capsys.readouterr().err
    assert not any("/resolve/" in one for one in hub.requests)


def test_a_connection_that_breaks_is_not_a_wrong_repository(hub: Hub, agent_file: Path, tmp_path: Path) -> None:
    from huggingface_hub.errors import LocalEntryNotFoundError

    with pytest.raises(UserError, match="http://hub cannot be reached"), sharing._one_line_errors(REPO, "http://hub"):
        raise LocalEntryNotFoundError("An error happened while trying to locate the file")
    with pytest.raises(OSError, match="No space left"), sharing._one_line_errors(REPO, "http://hub"):
        raise OSError(errno.ENOSPC, "No space left on device")


def changed(hub: Hub, name: str, data: bytes, honest: bool = False) -> None:
    """Another file in the repository; `honest`: with its digest in the manifest."""
    files = hub.repos[REPO]
    files[name] = data
    if honest:
        manifest = json.loads(files["manifest.json"])
        manifest["files"][name] = hashlib.sha256(data).hexdigest()
        files["manifest.json"] = json.dumps(manifest).encode()


@pytest.mark.parametrize(
    ("name", "data", "honest", "message"),
    [
        ("agent.safetensors", b"other", False, "agent.safetensors is damaged (sha256)"),
        ("agent.safetensors", b"other bytes", True, f"{REPO}: agent.safetensors: not a rl_training agent"),
        ("manifest.json", b"{}", False, "not an agent of this library"),
        ("manifest.json", b"{", False, f"{REPO}: manifest.json: not valid JSON"),
        ("../../evil.py", b"x", True, "which is no file of an agent"),
        ("code.py", b"x", True, "which is no file of an agent"),
    ],
)
def test_what_is_not_an_agent_is_rejected(
    hub: Hub, agent_file: Path, tmp_path: Path, capsys: Any, name: str, data: bytes, honest: bool, message: str
) -> None:
    push(hub, agent_file, "--num-episodes", "0")
    changed(hub, name, data, honest)
    capsys.readouterr()
    assert main(["pull", REPO, "-o", str(tmp_path / "pulled"), "--endpoint", hub.url]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1 and message in errors[0]
    assert not (tmp_path / "pulled").exists()


def test_a_folder_keeps_its_agent_where_the_new_one_cannot_be_written(
    hub: Hub, agent_file: Path, tmp_path: Path
) -> None:
    push(hub, agent_file, "--num-episodes", "0")
    (tmp_path / "results.json").mkdir()  # in the place of a full disk: one of the files cannot be written
    (tmp_path / "agent.safetensors").write_bytes(b"mine")
    assert main(["pull", REPO, "-o", str(tmp_path), "--endpoint", hub.url]) == 2
    assert {one.name for one in tmp_path.iterdir()} == {"results.json", "agent.safetensors"}
    assert (tmp_path / "agent.safetensors").read_bytes() == b"mine"


def test_a_missing_repository_and_an_invalid_name(hub: Hub, tmp_path: Path, capsys: Any) -> None:
    for repo, message in (("me/nothing", "no such repository"), ("a/b/c", "not a name of a repository")):
        assert main(["pull", repo, "-o", str(tmp_path / "pulled"), "--endpoint", hub.url]) == 2
        errors = capsys.readouterr().err.splitlines()
        assert len(errors) == 1 and message in errors[0]


def test_an_invalid_name_is_rejected_before_the_evaluation(hub: Hub, agent_file: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sharing, "evaluate_agent", lambda *_, **__: pytest.fail("evaluated"))
    with pytest.raises(UserError, match="a/b/c: not a name of a repository"):
        push_agent(load_agent(agent_file), "a/b/c", endpoint=hub.url)


def test_a_hub_that_cannot_be_reached_is_one_line(agent_file: Path, tmp_path: Path, capsys: Any) -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        for words in (
            ["pull", REPO, "-o", str(tmp_path / "x")],
            ["push", str(agent_file), REPO, "--num-episodes", "0", "--no-video"],
        ):
            assert main([*words, "--endpoint", url]) == 2
            errors = capsys.readouterr().err.splitlines()
            assert len(errors) == 1 and f"{url} cannot be reached" in errors[0]


def test_the_package_is_optional(agent_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from rl_training.deploy.hub import pull_agent

    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(UserError, match=r"the hub needs pip install 'rl-training\[hub\]'"):
        pull_agent(REPO, "x")
