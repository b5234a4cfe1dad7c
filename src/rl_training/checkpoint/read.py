"""Reading checkpoints: a directory of safetensors and JSON files, with a manifest of SHA-256 that is written last.

Loading executes nothing, and parses no file before its digest is verified.
"""

from __future__ import annotations

import hashlib
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from rl_training.core.checks import UserError, one_line, shown
from rl_training.core.version import __version__
from rl_training.files.atomic import (
    MAX_JSON_BYTES,
    parse_json,
    read_bytes,
    to_json,
)
from rl_training.files.tensor_files import TYPE_NAMES

FORMAT = 2  # 1: one flat state instead of parts
MANIFEST = "manifest.json"
STEP_NAME = re.compile(r"step_(\d{12})")
FILE_NAME = re.compile(r"[a-z0-9_]+\.(safetensors|json)")
MAX_KEPT_BYTES = 64 * 1024 * 1024  # of verified files, from verifying to loading; others are read twice
THREADS = 2  # that verify files: each holds one


class DamagedCheckpoint(UserError):
    """A checkpoint or agent file that is incomplete or altered."""

    exit_code = 1


class NotACheckpoint(DamagedCheckpoint):
    """A path without a checkpoint: a wrong path, or a save that was cut short."""

    exit_code = 2


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: its state and the manifest's entries of its files."""

    path: Path
    step: int
    files: dict[str, dict[str, Any]]
    state: dict[str, Any]
    kept: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)  # verified files, until loaded

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of one file: of the bytes that were verified, or read and verified again."""
        if name not in self.files:
            raise DamagedCheckpoint(f"{self.path.name} damaged (no {name})")
        data = self.kept.get(name)
        if data is None:
            data = _verified(self.path, name, self.files[name])
        return load_tensors(data, self.path / name)

    def file_inodes(self) -> dict[str, int]:
        """The inodes of the files that are now in its directory, by name."""
        return inodes(self.path) if self.path.is_dir() else {}

    def names(self, prefix: str) -> list[str]:
        """The files whose names start with `prefix`, sorted."""
        return sorted(name for name in self.files if name.startswith(prefix))


def load_tensors(data: bytes, path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or a DamagedCheckpoint that names `path`."""
    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:
        raise DamagedCheckpoint(f"{path}: not a safetensors file ({one_line(error)})") from error
    for name, tensor in tensors.items():
        if tensor.dtype not in TYPE_NAMES:
            raise DamagedCheckpoint(f"{path}: {shown(name)} is {tensor.dtype}, which is never written")
    return tensors


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def manifest_bytes(step: int, files: dict[str, dict[str, Any]]) -> bytes:
    """The manifest, with its own digest."""
    body = {"format": FORMAT, "library": __version__, "step": step, "files": files}
    return to_json({**body, "sha256": _sha256(to_json(body))})


def inodes(directory: Path) -> dict[str, int]:
    """The inodes of a directory's files, by name."""
    with os.scandir(directory) as entries:
        return {entry.name: entry.inode() for entry in entries}


def list_checkpoints(root: Path) -> list[Path]:
    """The checkpoint directories of a run, oldest first, not verified."""
    if not root.is_dir():
        return []
    found = (path for path in root.iterdir() if STEP_NAME.fullmatch(path.name))
    return sorted(path for path in found if path.is_dir() and not path.is_symlink())


def available(root: Path) -> str:
    """The end of an error message: the checkpoints that exist, if any."""
    names = [path.name for path in list_checkpoints(root)]
    return f"; available: {', '.join(names)}" if names else ""


def load_checkpoint(path: Path, only: tuple[str, ...] | None = None) -> Checkpoint:
    """Load a checkpoint after verifying every file of its directory, or only the state and the files in `only`."""
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
    for name in files:
        if not FILE_NAME.fullmatch(name):
            raise DamagedCheckpoint(f"{path.name} damaged ({MANIFEST} names a file {shown(name)})")
    data = _verified_files(path, {n: files[n] for n in files if only is None or n in ("state.json", *only)})
    state: Any = parse_json(data.pop("state.json"), path / "state.json")
    if not isinstance(state, dict):
        raise DamagedCheckpoint(f"{path.name} damaged (state.json is not a mapping)")
    return Checkpoint(path, step, files, state, data)


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
    if manifest["format"] < FORMAT:
        raise UserError(
            f"{path}: a checkpoint of format {manifest['format']}, this version reads {FORMAT}; "
            "resume it with the version that wrote it, or start a new run from one of its agent files"
        )
    return manifest


def _rewritten(manifest: dict[str, Any]) -> bytes:
    """The bytes that a manifest must have: any change is detected, even in its white space."""
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    try:
        return to_json({**body, "sha256": _sha256(to_json(body))})
    except (ValueError, RecursionError):
        return b""


def _verified_files(path: Path, files: dict[str, Any]) -> dict[str, bytes]:
    """Verify files, some at once. Returns the bytes of `state.json` and of as many others as may be kept."""
    kept, room = {"state.json"}, MAX_KEPT_BYTES
    for name in sorted(files.keys() - kept):
        if (_size(files[name]) or 0) <= room:
            kept.add(name)
            room -= _size(files[name]) or 0

    def verify(name: str) -> bytes | None:
        data = _verified(path, name, files[name])
        return data if name in kept else None

    with ThreadPoolExecutor(THREADS) as pool:
        found = zip(files, pool.map(verify, files), strict=True)  # raises the first problem in the manifest's order
        return {name: data for name, data in found if data is not None}


def _size(entry: Any) -> int | None:
    size = entry.get("bytes") if isinstance(entry, dict) else None
    return size if isinstance(size, int) else None


def _verified(path: Path, name: str, entry: Any) -> bytes:
    size = _size(entry)
    if size is None:
        raise DamagedCheckpoint(f"{path.name} damaged ({MANIFEST} is incomplete)")
    try:
        data = read_bytes(path / name, limit=size)
    except UserError as error:
        raise DamagedCheckpoint(f"{path.name} damaged: {error}") from error
    if _sha256(data) != entry.get("sha256"):
        raise DamagedCheckpoint(f"{path.name} damaged ({name} sha256)")
    return data


def newest_checkpoint(root: Path, only: tuple[str, ...] | None = None) -> tuple[Checkpoint, list[str]]:
    """The newest intact checkpoint, and a line for each newer one that is damaged."""
    skipped: list[str] = []
    for path in reversed(list_checkpoints(root)):
        try:
            checkpoint = load_checkpoint(path, only)
            return checkpoint, [f"{line}, using {checkpoint.path.name}" for line in skipped]
        except DamagedCheckpoint as error:
            skipped.append(str(error))
    if skipped:
        raise DamagedCheckpoint(f"{root}: no checkpoint is intact: {'; '.join(skipped)}")
    raise UserError(f"{root}: no checkpoint found")
