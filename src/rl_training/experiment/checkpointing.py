"""Checkpoints that are whole or absent: a directory of safetensors and JSON, its manifest of SHA-256 written last.

Loading reads numbers only. Files that do not change between checkpoints (segments of the replay) are hard-linked from
the previous one, so a checkpoint costs what is new, and every directory stands alone.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch
from torch import Tensor

from rl_training import __version__
from rl_training.core.checks import UserError
from rl_training.experiment.files import read_bytes, read_json, sync_directory, to_json, write_synced

FORMAT = 1
MANIFEST = "manifest.json"
STEP_NAME = re.compile(r"step_(\d{12})")
FILE_NAME = re.compile(r"[a-z0-9_]+\.(safetensors|json)")
Tensors = Mapping[str, Tensor]


class DamagedCheckpoint(UserError):
    """A checkpoint that is incomplete, altered or not one at all."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: `state` and the bytes behind each tensor file are what was written."""

    path: Path
    step: int
    files: dict[str, dict[str, Any]]
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        return load_tensors(_verified(self.path, name, self.files[name]), self.path / name)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(prefix))


def pack_tensors(tensors: Tensors, metadata: dict[str, str] | None = None) -> bytes:
    arrays = {name: np.asarray(tensor.detach().cpu().numpy(), order="C") for name, tensor in tensors.items()}
    return safetensors.numpy.save(arrays, metadata)


def load_tensors(data: bytes, path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(data)
    except Exception as error:
        raise DamagedCheckpoint(f"{path}: not a safetensors file ({error})") from error


def save_checkpoint(
    root: Path,
    step: int,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensors],
    unchanged: Checkpoint | None = None,
    linked: tuple[str, ...] = (),
) -> Checkpoint:
    """Write `root/step_<n>`; the files named in `linked` are taken over from the checkpoint `unchanged`."""
    root.mkdir(parents=True, exist_ok=True)
    final, temporary = root / f"step_{step:012d}", root / f".tmp-step_{step:012d}-{os.getpid()}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        files: dict[str, dict[str, Any]] = {}
        for name in linked:
            assert unchanged is not None
            _link_or_copy(unchanged.path / name, temporary / name)
            files[name] = unchanged.files[name]
        contents = {f"{name}.safetensors": pack_tensors(group) for name, group in tensors.items()}
        contents["state.json"] = to_json(state)
        for name, data in contents.items():
            write_synced(temporary / name, data)
            files[name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        write_synced(temporary / MANIFEST, _manifest(step, files))
        sync_directory(temporary)
        if final.exists():  # the same step again, after a resume: the new one holds the same bits
            os.rename(final, root / f".del-step_{step:012d}-{os.getpid()}")
        os.rename(temporary, final)
        sync_directory(root)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    remove_leftovers(root)
    return Checkpoint(final, step, files, dict(state))


def _manifest(step: int, files: dict[str, dict[str, Any]]) -> bytes:
    body = {"format": FORMAT, "library": __version__, "step": step, "files": files}
    return to_json({**body, "sha256": hashlib.sha256(to_json(body)).hexdigest()})


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        write_synced(target, read_bytes(source))


def list_checkpoints(root: Path) -> list[Path]:
    """Oldest first, verified or not."""
    if not root.is_dir():
        return []
    return sorted(path for path in root.iterdir() if STEP_NAME.fullmatch(path.name) and path.is_dir())


def remove_old(root: Path, keep: int) -> None:
    """Rotate: only the newest `keep` stay. Renamed first, so that a half-deleted one is never mistaken for whole."""
    for path in list_checkpoints(root)[:-keep]:
        os.rename(path, root / f".del-{path.name}-{os.getpid()}")
    remove_leftovers(root)


def remove_leftovers(root: Path) -> None:
    """What an interrupted save or rotation left; only ever called by the holder of the run's lock."""
    for pattern in (".tmp-step_*", ".del-step_*"):
        for path in root.glob(pattern):
            shutil.rmtree(path, ignore_errors=True)


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify every file of one checkpoint directory."""
    if not path.is_dir():
        raise DamagedCheckpoint(f"{path}: not a checkpoint directory")
    if not (path / MANIFEST).exists():
        raise DamagedCheckpoint(f"{path}: not a checkpoint (no {MANIFEST})")
    manifest = read_json(path / MANIFEST)
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise DamagedCheckpoint(f"{path}: {MANIFEST} damaged")
    if isinstance(manifest.get("format"), int) and manifest["format"] > FORMAT:
        raise UserError(f"{path}: written by rl_training {manifest.get('library')}, this is {__version__}")
    files, step = manifest["files"], manifest.get("step", 0)
    if read_bytes(path / MANIFEST) != _rewritten(manifest):
        raise DamagedCheckpoint(f"{path}: {MANIFEST} damaged (sha256)")
    for name, entry in files.items():
        if not FILE_NAME.fullmatch(name):
            raise DamagedCheckpoint(f"{path}: {MANIFEST} names a file {name!r}")
        _verified(path, name, entry)
    if "state.json" not in files:
        raise DamagedCheckpoint(f"{path}: {MANIFEST} has no state.json")
    return Checkpoint(path, int(step), files, read_json(path / "state.json"))


def _rewritten(manifest: dict[str, Any]) -> bytes:
    """What the manifest's bytes must be: a flip anywhere in it, even in its white space, is a difference."""
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    try:
        return to_json({**body, "sha256": hashlib.sha256(to_json(body)).hexdigest()})
    except ValueError:
        return b""


def _verified(path: Path, name: str, entry: Mapping[str, Any]) -> bytes:
    size = entry.get("bytes")
    if not isinstance(size, int):
        raise DamagedCheckpoint(f"{path}: {MANIFEST} damaged")
    try:
        data = read_bytes(path / name, limit=size)
    except UserError as error:
        raise DamagedCheckpoint(f"{path.name} damaged: {error}") from error
    if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
        raise DamagedCheckpoint(f"{path.name} damaged ({name} sha256)")
    return data


def newest_checkpoint(root: Path) -> tuple[Checkpoint, list[str]]:
    """The newest checkpoint that verifies, and a line for each newer one that did not."""
    skipped: list[str] = []
    for path in reversed(list_checkpoints(root)):
        try:
            checkpoint = load_checkpoint(path)
            return checkpoint, [f"{line}, using {checkpoint.path.name}" for line in skipped]
        except DamagedCheckpoint as error:
            skipped.append(str(error))
    if skipped:
        raise DamagedCheckpoint(f"{root}: no checkpoint is intact: {'; '.join(skipped)}")
    raise UserError(f"{root}: no checkpoint found")
