"""Files made to do harm or to break a reader: each builder takes a good run and a place, and returns what to load."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.checkpoint.read import FORMAT, _sha256, manifest_bytes, newest_checkpoint
from rl_training.files.atomic import to_json
from rl_training.files.tensor_files import pack_tensors
from rl_training.run.agent import KEY, _digest, load_agent, load_tensors

STEP = "step_000000000040"


class Canary:
    """Whoever unpickles it creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def canary(place: Path) -> bytes:
    return pickle.dumps(Canary(place.parent / "executed"))


def seal(checkpoint: Path, **changes: Any) -> Path:
    """Recompute every digest, as whoever alters a checkpoint on purpose would; `changes` are to the manifest."""
    names = [path.name for path in checkpoint.iterdir() if path.name != "manifest.json"]
    files = {}
    for name in names:
        data = (checkpoint / name).read_bytes()
        files[name] = {"sha256": _sha256(data), "bytes": len(data)}
    body = {**json.loads(manifest_bytes(int(STEP[5:]), files)), **changes}
    body.pop("sha256")
    (checkpoint / "manifest.json").unlink()  # it may have another name elsewhere
    (checkpoint / "manifest.json").write_bytes(to_json({**body, "sha256": _sha256(to_json(body))}))
    return checkpoint


def copy_checkpoint(run: Path, place: Path) -> Path:
    return Path(shutil.copytree(newest_checkpoint(run / "checkpoints")[0].path, place / STEP))


def replaced(name: str, sealed: bool) -> Callable[[Path, Path], Path]:
    def build(run: Path, place: Path) -> Path:
        checkpoint = copy_checkpoint(run, place)
        file = next(checkpoint.glob(name))
        file.write_bytes(canary(place))
        return seal(checkpoint) if sealed else checkpoint

    return build


def linked(name: str) -> Callable[[Path, Path], Path]:
    def build(run: Path, place: Path) -> Path:
        checkpoint = copy_checkpoint(run, place)
        (checkpoint / name).rename(place / "outside")
        (checkpoint / name).symlink_to(place / "outside")
        return checkpoint

    return build


def piped(name: str) -> Callable[[Path, Path], Path]:
    def build(run: Path, place: Path) -> Path:
        checkpoint = copy_checkpoint(run, place)
        (checkpoint / name).unlink()
        os.mkfifo(checkpoint / name)
        return checkpoint

    return build


def named(name: str) -> Callable[[Path, Path], Path]:
    """A manifest that is in order but for the name of one more file."""

    def build(run: Path, place: Path) -> Path:
        checkpoint = copy_checkpoint(run, place)
        files = json.loads((checkpoint / "manifest.json").read_bytes())["files"]
        entry = {"sha256": _sha256(b"x"), "bytes": 1}
        (place / "x").write_bytes(b"x")
        return seal(checkpoint, files={**files, name: entry})

    return build


def manifest_of(data: bytes) -> Callable[[Path, Path], Path]:
    def build(run: Path, place: Path) -> Path:
        checkpoint = copy_checkpoint(run, place)
        (checkpoint / "manifest.json").write_bytes(data)
        return checkpoint

    return build


def sealed_with(**changes: Any) -> Callable[[Path, Path], Path]:
    return lambda run, place: seal(copy_checkpoint(run, place), **changes)


def state_text(change: Callable[[str], str]) -> Callable[[Path, Path], Path]:
    def build(run: Path, place: Path) -> Path:
        checkpoint = copy_checkpoint(run, place)
        file = checkpoint / "state.json"
        before = file.read_text()
        file.write_text(change(before))
        assert file.read_text() != before
        return seal(checkpoint)

    return build


def state_with(**changes: Any) -> Callable[[Path, Path], Path]:
    return state_text(lambda text: json.dumps(merged(json.loads(text), changes)))


def merged(values: Any, changes: Any) -> Any:
    if not isinstance(values, dict) or not isinstance(changes, dict):
        return changes
    return {**values, **{key: merged(values.get(key), change) for key, change in changes.items()}}


def huge(run: Path, place: Path) -> Path:
    checkpoint = copy_checkpoint(run, place)
    os.truncate(checkpoint / "manifest.json", 2**26 + 1)
    return checkpoint


def shape_bomb(run: Path, place: Path) -> Path:
    checkpoint = copy_checkpoint(run, place)
    header = json.dumps({"q": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    (checkpoint / "learner.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    return seal(checkpoint)


def agent_file(change: Callable[[dict[str, Any]], Any], forged: bytes | None = None) -> Callable[[Path, Path], Path]:
    """An agent whose description says something else, with its digest recomputed."""

    def build(run: Path, place: Path) -> Path:
        source = next((run / "agents").glob("*_final.safetensors"))
        data = source.read_bytes() if forged is None else forged
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        about, tensors = json.loads(header["__metadata__"][KEY]), load_tensors(data, source)
        about = change(about)
        if isinstance(about, dict):
            about["sha256"] = _digest(about, tensors)
        path = place / "agent.safetensors"
        path.write_bytes(pack_tensors(tensors, {KEY: json.dumps(about, sort_keys=True)}))
        return path

    return build


def agent_with(**changes: Any) -> Callable[[Path, Path], Path]:
    return agent_file(lambda about: merged(about, changes))


def plain(make: Callable[[Path], bytes], name: str = "agent") -> Callable[[Path, Path], Path]:
    def build(run: Path, place: Path) -> Path:
        (place / name).write_bytes(make(place))
        return place / name

    return build


def header(value: Any) -> Callable[[Path], bytes]:
    def make(place: Path) -> bytes:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        return len(data).to_bytes(8, "little") + data

    return make


def torch_file(place: Path, zipped: bool = True) -> bytes:
    buffer = io.BytesIO()
    torch.save({"model": Canary(place.parent / "executed")}, buffer, _use_new_zipfile_serialization=zipped)
    return buffer.getvalue()


def sb3_zip(place: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("data", json.dumps({"policy_class": {":serialized:": "gASV"}}))
        archive.writestr("policy.pth", torch_file(place))
    return buffer.getvalue()


def object_npz(place: Path) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, a=np.array([Canary(place.parent / "executed")], dtype=object))
    return buffer.getvalue()


def pipe(run: Path, place: Path) -> Path:
    os.mkfifo(place / "agent")
    return place / "agent"


def link_to_a_good_agent(run: Path, place: Path) -> Path:
    (place / "agent").symlink_to(next((run / "agents").glob("*_final.safetensors")))
    assert load_agent(place / "agent").step == 40
    return place / "agent"


NEWER = FORMAT + 1
