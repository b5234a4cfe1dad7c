"""Compiled programs that later processes load instead of compiling them again.

Inductor stores what it compiles in a folder, here one of the user's own cache. Its name is a digest of everything
outside torch's own keys that compiled code depends on, so that a stored program is the one that would be compiled now.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from rl_training.core.checks import Note
from rl_training.core.numerics import VARIABLE as NUMERICS
from rl_training.core.numerics import processor_facts
from rl_training.engine.rounding import libraries

VARIABLE, OFF = "RL_TRAINING_CACHE", "off"
TORCH_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
CHOSEN_VARIABLE = "RL_TRAINING_CACHE_CHOSEN"  # the folder that we gave to torch, in this process or in one above it
MARKER = "compiling-"  # a file of this prefix is locked while its process compiles, and removed when it has succeeded
MAX_FOLDERS = 20  # of programs for one version of everything, a few MB for each algorithm


@contextmanager
def compile_cache(device_type: str = "cpu") -> Iterator[None]:
    """Compile with the folder of this machine, unless the user has given torch another."""
    from torch._inductor import codecache  # here, since it is slow to import and only compiling needs it
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    given = os.environ.get(TORCH_VARIABLE)
    if given not in (None, os.environ.get(CHOSEN_VARIABLE), os.path.abspath(default_cache_dir())):
        yield
        return
    folder = _folder(os.environ.get(VARIABLE, ""), os.environ.get("XDG_CACHE_HOME", ""), device_type == "cpu")
    os.environ[TORCH_VARIABLE] = os.environ[CHOSEN_VARIABLE] = str(folder)  # compiling processes inherit it
    # Torch stores these two in the temporary folder of all users, whatever its variable says.
    for name, place in (("_HEADER_DIR", "headers"), ("_HEADER_LOCK_DIR", "headers/locks")):
        if hasattr(codecache, name):
            setattr(codecache, name, str(folder / place))
    with _marked(folder):
        yield


@functools.cache
def _folder(given: str, xdg: str, on_cpu: bool) -> Path:
    """The folder of programs for this machine; a temporary one if there is to be no cache, or none can be used."""
    if given == OFF:
        return _temporary()
    home = Path(xdg) if os.path.isabs(xdg) else Path("~/.cache")
    root = Path(given) if given else home / "rl_training"
    try:
        root = root.expanduser().absolute()
        folder = root / "compiled" / machine_key()
        if on_cpu and has_space(folder):  # Triton takes them
            raise OSError("torch does not quote spaces in a path for the C++ compiler")
        for one in (root, folder.parent, folder):
            one.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_private(one)
        _discard_unfinished(folder)
        os.utime(folder)
        _remove_oldest(folder.parent)
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        what = error.strerror or error if isinstance(error, OSError) else error
        warnings.warn(f"{VARIABLE}: {root} is not used, so nothing compiled is stored: {what}", Note, stacklevel=2)
        return _temporary()
    return folder


def has_space(path: object) -> bool:
    """Whether a path has white space, at which torch splits the commands of the C++ compiler."""
    return any(map(str.isspace, str(path)))


def spaced_place() -> str | None:
    """The first place other than our own folder that these commands name, and that has white space."""
    given = {os.environ.get(name, "") for name in ("CXX", TORCH_VARIABLE)} - {os.environ.get(CHOSEN_VARIABLE)}
    python = sysconfig.get_config_var("LIBDIR"), sysconfig.get_path("include")
    places = (*sorted(given), torch.__path__[0], *python, tempfile.gettempdir())
    return next((place for place in places if has_space(place)), None)


def _check_private(folder: Path) -> None:
    """Reject a folder that someone else could write to: what is loaded from it is run."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(f"{folder} is no folder")
    if found.st_uid != os.geteuid():
        raise OSError(f"{folder} belongs to another user")
    if found.st_mode & 0o022:
        raise OSError(f"{folder} can be written by other users")


def _temporary() -> Path:
    """A folder of this process, removed at its end."""
    folder, owner = tempfile.mkdtemp(prefix="rl_training-compiled-"), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return Path(folder)


def _remove_oldest(parent: Path) -> None:
    """Remove all folders but those used last; a program that is loaded stays in memory."""
    folders = [one for one in parent.iterdir() if re.fullmatch("[0-9a-f]{32}", one.name) and one.is_dir()]
    folders.sort(key=lambda one: one.stat().st_mtime, reverse=True)
    for one in folders[MAX_FOLDERS:]:
        shutil.rmtree(one, ignore_errors=True)


# --- files that are whole -------------------------------------------------------------------------------------------
def _discard_unfinished(folder: Path) -> None:
    """Empty the folder if a process was killed while it compiled: the C++ compiler leaves parts of files."""
    dead = []
    for marker in folder.glob(f"{MARKER}*"):
        with marker.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # at work
                continue
            dead.append(marker)
    if dead and len(dead) < len(list(folder.glob(f"{MARKER}*"))):
        raise OSError(f"{folder} has unfinished files, and another process compiles")
    if dead:
        old = folder.with_name(f"{folder.name}-{uuid.uuid4().hex}")
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
        folder.mkdir(mode=0o700)


@contextmanager
def _marked(folder: Path) -> Iterator[None]:
    """Mark the folder as unfinished until the block has succeeded and its files are on disk."""
    marker = folder / f"{MARKER}{uuid.uuid4().hex}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may have been removed since
    with marker.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        start = marker.stat().st_mtime  # the file system's clock, as that of the files which follow
        yield
        for path in folder.rglob("*"):
            with suppress(OSError):  # another process may remove what it replaces
                if path.is_file() and path.stat().st_mtime >= start:
                    _sync(path)
        marker.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- the key --------------------------------------------------------------------------------------------------------
def machine_key() -> str:
    """A digest of what compiled code depends on, beside the program and its options, which torch's keys have."""
    facts = {
        "torch": [torch.__version__, torch.version.git_version],
        "python": sys.version,
        "rl_training": source_digest(Path(__file__).parents[1]),
        "numerics": [os.environ.get(NUMERICS, ""), libraries()],
        "processor": processor_facts(),
        "compiler": _compiler(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def source_digest(package: Path) -> str:
    """The SHA-256 of the names and contents of a package's files of Python and C++."""
    digest = hashlib.sha256()
    for path in sorted((*package.rglob("*.py"), *package.rglob("*.cpp"))):
        data = path.read_bytes()
        digest.update(f"{path.relative_to(package)} {len(data)}\n".encode() + data)
    return digest.hexdigest()


def _compiler() -> list[str]:
    """The C++ compiler that Inductor uses, and its version."""
    name = os.environ.get("CXX") or "g++"
    try:
        done = subprocess.run([name, "-v"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return [name]
    return [name, shutil.which(name) or "", done.stderr]
