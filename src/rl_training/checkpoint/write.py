"""Writing checkpoints: under a temporary name, synced, renamed; old ones are removed afterwards.

Files that do not change between checkpoints (segments of the replay) are hard-linked from the previous one: only new
files are written, and every directory is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from rl_training.checkpoint.read import MANIFEST, Checkpoint, inodes, list_checkpoints, manifest_bytes
from rl_training.files.atomic import (
    exchange,
    make_directory,
    start_writing,
    sync_directory,
    sync_file,
    sync_tree,
    to_json,
    write_synced,
)
from rl_training.files.tensor_files import Tensors, tensor_parts


def save_checkpoint(
    root: Path,
    step: int,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensors],
    unchanged: Checkpoint | None = None,
    linked: tuple[str, ...] = (),
    *,
    pool: ThreadPoolExecutor,
) -> Checkpoint:
    """Write `root/step_<n>`; the files named in `linked` are hard-linked from the checkpoint `unchanged`."""
    make_directory(root)
    final, temporary = root / f"step_{step:012d}", root / f".tmp-step_{step:012d}-{os.getpid()}"
    present = unchanged.file_inodes() if unchanged is not None else {}
    _create_directory(root, temporary, {name: present[name] for name in linked})
    try:
        files = _write_files(temporary, state, tensors, unchanged, linked, pool)
        write_synced(temporary / MANIFEST, manifest_bytes(step, files))
        sync_directory(temporary)
        if final.exists():  # the same step again, after a resume
            replaced = root / f".del-step_{step:012d}-{os.getpid()}"
            if exchange(temporary, final):  # so that the checkpoint exists at any moment
                os.rename(temporary, replaced)
            else:
                os.rename(final, replaced)
                os.rename(temporary, final)
        else:
            os.rename(temporary, final)
        sync_directory(root)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return Checkpoint(final, step, files, dict(state))


def _create_directory(root: Path, temporary: Path, shared: Mapping[str, int]) -> None:
    """Create `temporary`: empty, or from a removed checkpoint with the files that the new one shares.

    Linking and unlinking a hundred segments takes longer than writing a new one; reusing a directory avoids it.
    """
    spare = next(root.glob(".del-step_*"), None)
    remove_leftovers(root, keep=spare)  # first, to free disk space
    if spare is None:
        temporary.mkdir()
    else:
        os.rename(spare, temporary)
        _keep_only(temporary, shared)


def _keep_only(directory: Path, shared: Mapping[str, int]) -> None:
    """Remove every file but those in `shared`, compared by inode."""
    for name, inode in inodes(directory).items():
        if shared.get(name) != inode:
            os.unlink(f"{directory}/{name}")


def _write_files(
    directory: Path,
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensors],
    unchanged: Checkpoint | None,
    linked: tuple[str, ...],
    pool: ThreadPoolExecutor,
) -> dict[str, dict[str, Any]]:
    """Write and sync every file but the manifest; returns the manifest's entries."""
    parts = {f"{name}.safetensors": tensor_parts(group) for name, group in tensors.items()}
    parts["state.json"] = [memoryview(to_json(state))]
    synced = []
    try:
        # Synced in parallel and hashed meanwhile.
        for name, pieces in parts.items():
            synced.append(pool.submit(sync_file, start_writing(directory / name, pieces)))
        files = {name: _entry(pieces) for name, pieces in parts.items()}
        present = inodes(directory)
        for name in linked:
            assert unchanged is not None
            if name not in present:
                _link_or_copy(f"{unchanged.path}/{name}", f"{directory}/{name}")
            files[name] = unchanged.files[name]
    finally:
        wait(synced)  # also after an error: no thread may still write into a directory that is removed
    for one in synced:
        one.result()
    return files


def _entry(parts: Sequence[memoryview]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return {"sha256": digest.hexdigest(), "bytes": sum(map(len, parts))}


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        write_synced(Path(target), Path(source).read_bytes())


def copy_checkpoint(checkpoint: Checkpoint, root: Path, state: Mapping[str, Any]) -> Checkpoint:
    """Copy a checkpoint into another run, with another state."""
    target = root / f"step_{checkpoint.step:012d}"
    shutil.copytree(checkpoint.path, target, ignore=shutil.ignore_patterns(MANIFEST, "state.json"))
    data = to_json(state)
    write_synced(target / "state.json", data)
    files = {**checkpoint.files, "state.json": _entry([memoryview(data)])}
    write_synced(target / MANIFEST, manifest_bytes(checkpoint.step, files))
    sync_tree(root)  # later checkpoints link these files
    return Checkpoint(target, checkpoint.step, files, dict(state))


def remove_old(root: Path, keep: int, newest: Checkpoint) -> None:
    """Remove all but the newest `keep` checkpoints; renamed first, so that a half-deleted one is never listed.

    The files that the last of them shares with the newest take no space; the next save reuses its directory.
    """
    spare = None
    for path in list_checkpoints(root)[:-keep]:
        spare = root / f".del-{path.name}-{os.getpid()}"
        os.rename(path, spare)
    remove_leftovers(root, keep=spare)
    if spare is not None:
        _keep_only(spare, newest.file_inodes())


def remove_newer(root: Path, step: int) -> None:
    """Remove the checkpoints after `step`: a run that resumes from an older one writes them again."""
    for path in list_checkpoints(root):
        if path.name > f"step_{step:012d}":
            os.rename(path, root / f".del-{path.name}-{os.getpid()}")
    remove_leftovers(root)


def remove_leftovers(root: Path, keep: Path | None = None) -> None:
    """Remove what an interrupted save or removal left behind; only the holder of the run's lock may call this."""
    for pattern in (".tmp-step_*", ".del-step_*"):
        for path in root.glob(pattern):
            if path != keep:
                shutil.rmtree(path, ignore_errors=True)
