"""One way out for every file format: whole, or not at all, and never over what is there."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zlib
from pathlib import Path

import numpy as np

from rl_training.core.checks import UserError, did_you_mean, one_line, shown
from rl_training.data.hdf5 import h5py_module, write_hdf5
from rl_training.data.loaders import ABOUT, ALIASES, SUFFIXES
from rl_training.data.minari import write_minari
from rl_training.data.npz import write_npz
from rl_training.data.storage import Array
from rl_training.data.transitions import Transitions
from rl_training.experiment.files import make_directory, sync_directory, sync_tree

FORMATS = ("npz", "hdf5", "minari")


def choose_format(path: Path, name: str | None = None) -> str:
    """The format to write: asked for by name, or by the suffix; a folder is Minari's."""
    if name is not None and name not in FORMATS:
        raise UserError(f"format must be one of {', '.join(FORMATS)}, got {shown(name)}{did_you_mean(name, FORMATS)}")
    by_suffix = SUFFIXES.get(path.suffix.lower(), "minari" if not path.suffix else None)
    if by_suffix is None and name is None:
        raise UserError(f"{path}: must end in {', '.join(SUFFIXES)}, or in nothing for a Minari folder")
    # A folder may be called anything; a file is later read by its suffix.
    if name is not None and by_suffix != name and (name != "minari" or by_suffix is not None):
        raise UserError(f"{path}: does not have the suffix of {name}")
    return name or str(by_suffix)


def check_new(path: Path, chosen: str) -> None:
    """Before hours of recording, and without a trace: whether `save_transitions` will be able to write there."""
    if chosen != "npz":
        h5py_module()
    try:
        _check_absent(path)
        there = next(parent for parent in path.absolute().parents if parent.exists())
        probe = _temporary(there / path.name)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _unwritable(path, error) from error


def _check_absent(path: Path) -> None:
    if path.is_symlink() or path.exists():
        raise UserError(f"{path}: already exists")


def _unwritable(path: Path, error: OSError) -> UserError:
    return UserError(f"{path}: cannot be written ({one_line(error.strerror or error)})")


def _temporary(path: Path) -> Path:
    """Of this process and for this name, and never longer than a file system allows."""
    return path.with_name(f".tmp-data-{os.getpid()}-{zlib.crc32(os.fsencode(path.name)):08x}")


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def _remove_left_over(temporary: Path) -> None:
    """What was being written under the same name by processes that were killed."""
    key = temporary.name.rpartition("-")[2]
    for path in temporary.parent.glob(f".tmp-data-*-{key}"):
        found = re.fullmatch(rf"\.tmp-data-(\d+)-{key}", path.name)
        if found is not None and not _alive(int(found[1])):
            with contextlib.suppress(OSError):  # somebody else's
                _remove(path)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def save_transitions(transitions: Transitions, path: str | Path, format: str | None = None) -> Path:
    """Written under another name and renamed: the data set is there whole, or not at all. Nothing is overwritten."""
    path = Path(path)
    chosen = choose_format(path, format)
    temporary = _temporary(path)
    try:
        _check_absent(path)
        make_directory(path.parent)
        _remove_left_over(temporary)
        if chosen == "minari":
            write_minari(temporary, transitions, str(path))
        else:
            write = write_npz if chosen == "npz" else write_hdf5
            write(temporary, {**_by_file_name(transitions), ABOUT: _about_bytes(transitions)})
        sync_tree(temporary)
        _give_name(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        _remove(temporary)
    return path


def _give_name(temporary: Path, path: Path) -> None:
    """A file that came to be there meanwhile is kept: a rename would replace it, a folder is in its own way."""
    try:
        if not temporary.is_dir():
            return os.link(temporary, path)
    except FileExistsError as error:
        raise UserError(f"{path}: already exists") from error
    except OSError:  # a file system without links
        pass
    temporary.rename(path)


def _by_file_name(transitions: Transitions) -> dict[str, Array]:
    return {ALIASES[field][0]: array for field, array in transitions.arrays().items()}


def _about_bytes(transitions: Transitions) -> Array:
    names = ("env_id", "observation_space", "action_space")
    return np.frombuffer(json.dumps({name: getattr(transitions, name) for name in names}).encode(), np.uint8)
