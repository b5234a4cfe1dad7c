"""Writing transitions in every file format, atomically and without overwriting."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from rl_training.core.checks import UserError, did_you_mean, one_line, shown
from rl_training.data.datasets.array_store import Array
from rl_training.data.datasets.formats.hdf5 import h5py_module, write_hdf5
from rl_training.data.datasets.formats.loaders import ABOUT, ALIASES, SUFFIXES
from rl_training.data.datasets.formats.minari import write_minari
from rl_training.data.datasets.formats.npz import write_npz
from rl_training.data.datasets.transitions import Transitions
from rl_training.files.atomic import make_directory, sync_directory, sync_tree

FORMATS = ("npz", "hdf5", "minari")
WORK_PREFIX = ".tmp-data-"
MIN_AGE = 60.0  # seconds; a younger folder may not be locked yet


def choose_format(path: Path, name: str | None = None) -> str:
    """The format to write, by name or by the suffix; a path without a suffix is Minari's."""
    if name is not None and name not in FORMATS:
        raise UserError(f"format must be one of {', '.join(FORMATS)}, got {shown(name)}{did_you_mean(name, FORMATS)}")
    by_suffix = SUFFIXES.get(path.suffix.lower(), "minari" if not path.suffix else None)
    if by_suffix is None and name is None:
        raise UserError(f"{path}: must end in {', '.join(SUFFIXES)}, or in nothing for a Minari folder")
    # A folder may have any name; the format of a file is later read from its suffix.
    if name is not None and by_suffix != name and (name != "minari" or by_suffix is not None):
        raise UserError(f"{path}: does not have the suffix of {name}")
    return name or str(by_suffix)


def check_writable(path: Path, chosen: str) -> None:
    """Reject a path to which `save_transitions` cannot write, before hours of recording; leaves no files."""
    if chosen != "npz":
        h5py_module()
    try:
        _check_absent(path)
        existing = next(parent for parent in path.absolute().parents if parent.exists())
        with contextlib.suppress(FileNotFoundError):
            os.lstat(existing / path.name)  # a name may be too long
        with _work_folder(existing):
            pass
    except OSError as error:
        raise _unwritable(path, error) from error


def save_transitions(transitions: Transitions, path: str | Path, format: str | None = None) -> Path:
    """Write a dataset under a temporary name and rename it. Nothing is overwritten."""
    path = Path(path)
    chosen = choose_format(path, format)
    try:
        _check_absent(path)
        make_directory(path.parent)
        with _work_folder(path.parent) as folder:
            new = folder / "data"
            if chosen == "minari":
                write_minari(new, transitions, str(path))
            else:
                write = write_npz if chosen == "npz" else write_hdf5
                write(new, {**_by_file_name(transitions), ABOUT: _about_bytes(transitions)})
            sync_tree(new)
            _rename_new(new, path)
        sync_directory(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    return path


def _check_absent(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.lstat(path)
        raise UserError(f"{path}: already exists")


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path}: cannot be written ({one_line(error.strerror or error)})")


@contextmanager
def _work_folder(parent: Path) -> Iterator[Path]:
    """A temporary folder, locked while it is in use; removes the unlocked folders of killed processes."""
    prefix = f"{WORK_PREFIX}{zlib.crc32(socket.gethostname().encode()):08x}-"  # locks may be local to a machine
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    for left in parent.glob(f"{prefix}*"):
        _remove_unused(left, folder.stat().st_mtime)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(handle)
        shutil.rmtree(folder, ignore_errors=True)


def _remove_unused(folder: Path, now: float) -> None:
    with contextlib.suppress(OSError):  # in use, removed meanwhile, or not ours
        if now - folder.stat().st_mtime < MIN_AGE:
            return
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(handle)


def _rename_new(new: Path, path: Path) -> None:
    """Rename without replacing: where the path was created meanwhile, a link or the rename of a folder fails."""
    try:
        if not new.is_dir():
            return os.link(new, path)
    except FileExistsError as error:
        raise UserError(f"{path}: already exists") from error
    except OSError:  # a file system without links
        pass
    try:
        new.rename(path)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise UserError(f"{path}: already exists") from error
        raise


def _by_file_name(transitions: Transitions) -> dict[str, Array]:
    return {ALIASES[field][0]: array for field, array in transitions.arrays().items()}


def _about_bytes(transitions: Transitions) -> Array:
    names = ("env_id", "observation_space", "action_space")
    return np.frombuffer(json.dumps({name: getattr(transitions, name) for name in names}).encode(), np.uint8)
