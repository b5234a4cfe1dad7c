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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import safetensors.torch
import torch
from torch import Tensor

from rl_training import __version__
from rl_training.core.checks import UserError, one_line, shown
from rl_training.experiment.files import (
    MAX_JSON_BYTES,
    make_directory,
    parse_json,
    read_bytes,
    sync_directory,
    to_json,
    write_synced,
)

FORMAT = 1
MANIFEST = "manifest.json"
STEP_NAME = re.compile(r"step_(\d{12})")
FILE_NAME = re.compile(r"[a-z0-9_]+\.(safetensors|json)")
WRITTEN_TYPES = {torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8, torch.bool}
Tensors = Mapping[str, Tensor]


class DamagedCheckpoint(UserError):
    """A checkpoint or agent file that is incomplete or altered."""

    exit_code = 1


class NotACheckpoint(DamagedCheckpoint):
    """There is nothing to repair: the wrong path was given, or a save never got far."""

    exit_code = 2


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: `state` and the bytes behind each tensor file are what was written."""

    path: Path
    step: int
    files: dict[str, dict[str, Any]]
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        if name not in self.files:
            raise DamagedCheckpoint(f"{self.path.name} damaged (no {name})")
        return load_tensors(_verified(self.path, name, self.files[name]), self.path / name)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self.files if name.startswith(prefix))


def pack_tensors(tensors: Tensors, metadata: dict[str, str] | None = None) -> bytes:
    arrays = {name: np.asarray(tensor.detach().cpu().numpy(), order="C") for name, tensor in tensors.items()}
    return safetensors.numpy.save(arrays, metadata)


def load_tensors(data: bytes, path: Path) -> dict[str, Tensor]:
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:
        raise DamagedCheckpoint(f"{path}: not a safetensors file ({one_line(error)})") from error
    for name, tensor in tensors.items():
        if tensor.dtype not in WRITTEN_TYPES:
            raise DamagedCheckpoint(f"{path}: {shown(name)} is {tensor.dtype}, which is never written")
    return tensors


def save_checkpoint(
    root: Path,
    step: int,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensors],
    unchanged: Checkpoint | None = None,
    linked: tuple[str, ...] = (),
) -> Checkpoint:
    """Write `root/step_<n>`; the files named in `linked` are taken over from the checkpoint `unchanged`."""
    make_directory(root)
    remove_leftovers(root)  # first: they take room
    final, temporary = root / f"step_{step:012d}", root / f".tmp-step_{step:012d}-{os.getpid()}"
    temporary.mkdir()
    try:
        files: dict[str, dict[str, Any]] = {}
        for name in linked:
            assert unchanged is not None
            _link_or_copy(unchanged.path / name, temporary / name)
            files[name] = unchanged.files[name]
        contents = {f"{name}.safetensors": pack_tensors(group) for name, group in tensors.items()}
        contents["state.json"] = to_json(state)
        # All at once: the file system then commits them together, which takes as long as the largest one alone.
        with ThreadPoolExecutor(len(contents)) as pool:
            entries = pool.map(_write_entry, [temporary / name for name in contents], contents.values())
            files.update(zip(contents, entries, strict=True))
        write_synced(temporary / MANIFEST, _manifest(step, files))
        sync_directory(temporary)
        if final.exists():  # the same step again, after a resume: the new one holds the same bits
            os.rename(final, root / f".del-step_{step:012d}-{os.getpid()}")
        os.rename(temporary, final)
        sync_directory(root)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Checkpoint(final, step, files, dict(state))


def _write_entry(path: Path, data: bytes) -> dict[str, Any]:
    write_synced(path, data)
    return {"sha256": _sha256(data), "bytes": len(data)}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _manifest(step: int, files: dict[str, dict[str, Any]]) -> bytes:
    body = {"format": FORMAT, "library": __version__, "step": step, "files": files}
    return to_json({**body, "sha256": _sha256(to_json(body))})


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        write_synced(target, source.read_bytes())


def list_checkpoints(root: Path) -> list[Path]:
    """Oldest first, verified or not."""
    if not root.is_dir():
        return []
    found = (path for path in root.iterdir() if STEP_NAME.fullmatch(path.name))
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


def available(root: Path) -> str:
    """The end of an error message: which checkpoints there are instead, if any."""
    names = [path.name for path in list_checkpoints(root)]
    return f"; available: {', '.join(names)}" if names else ""


def remove_old(root: Path, keep: int) -> None:
    """Rotate: only the newest `keep` stay. Renamed first, so that a half-deleted one is never mistaken for whole."""
    for path in list_checkpoints(root)[:-keep]:
        os.rename(path, root / f".del-{path.name}-{os.getpid()}")
    remove_leftovers(root)


def remove_newer(root: Path, step: int) -> None:
    """A run that goes on from an older checkpoint writes the newer ones again; their logs are about to be cut off."""
    for path in list_checkpoints(root):
        if path.name > f"step_{step:012d}":
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
        raise NotACheckpoint(f"{path}: not a checkpoint directory{available(path.parent)}")
    if not (path / MANIFEST).exists():
        raise NotACheckpoint(f"{path}: not a checkpoint (no {MANIFEST}){available(path.parent)}")
    manifest = _read_manifest(path)
    files, step = manifest.get("files"), manifest.get("step")
    if not isinstance(files, dict) or "state.json" not in files or not isinstance(step, int) or step < 0:
        raise DamagedCheckpoint(f"{path.name} damaged ({MANIFEST} is incomplete)")
    named = STEP_NAME.fullmatch(path.name)
    if named and int(named[1]) != step:
        raise DamagedCheckpoint(f"{path.name} damaged ({MANIFEST} is of step {step})")
    state: Any = None
    for name, entry in files.items():
        if not FILE_NAME.fullmatch(name):
            raise DamagedCheckpoint(f"{path.name} damaged ({MANIFEST} names a file {shown(name)})")
        data = _verified(path, name, entry)
        if name == "state.json":
            state = parse_json(data, path / name)
    if not isinstance(state, dict):
        raise DamagedCheckpoint(f"{path.name} damaged (state.json is not a mapping)")
    return Checkpoint(path, step, files, state)


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        data = read_bytes(path / MANIFEST, limit=MAX_JSON_BYTES)
        manifest = parse_json(data, path / MANIFEST)
    except UserError as error:
        raise DamagedCheckpoint(f"{path.name} damaged: {error}") from error
    if not isinstance(manifest, dict) or data != _rewritten(manifest):
        raise DamagedCheckpoint(f"{path.name} damaged ({MANIFEST} sha256)")
    if not isinstance(manifest.get("format"), int):
        raise DamagedCheckpoint(f"{path.name} damaged ({MANIFEST} is incomplete)")
    if manifest["format"] > FORMAT:
        raise UserError(f"{path}: written by {one_line(manifest.get('library'))}, this is {__version__}")
    return manifest


def _rewritten(manifest: dict[str, Any]) -> bytes:
    """What the manifest's bytes must be: a flip anywhere in it, even in its white space, is a difference."""
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    try:
        return to_json({**body, "sha256": _sha256(to_json(body))})
    except (ValueError, RecursionError):
        return b""


def _verified(path: Path, name: str, entry: Any) -> bytes:
    size = entry.get("bytes") if isinstance(entry, dict) else None
    if not isinstance(size, int):
        raise DamagedCheckpoint(f"{path.name} damaged ({MANIFEST} is incomplete)")
    try:
        data = read_bytes(path / name, limit=size)
    except UserError as error:
        raise DamagedCheckpoint(f"{path.name} damaged: {error}") from error
    if _sha256(data) != entry.get("sha256"):
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
