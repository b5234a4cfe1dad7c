"""Atomic, durable writes: under a temporary name, synced, renamed. A reader sees the old file or the new one."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from rl_training.core.checks import UserError

MAX_JSON_BYTES = 64 * 1024 * 1024
MAX_PARTS = 1024  # of one `writev` call
AT_FDCWD, RENAME_EXCHANGE = -100, 2  # Linux
# Errors of the disk or its permissions, not of the program.
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until its bytes are on the disk."""
    sync_file(start_writing(path, [memoryview(data)]))


def start_writing(path: Path, parts: Sequence[memoryview]) -> BinaryIO:
    """Write a new file without waiting for the disk; `sync_file` waits."""
    handle = path.open("wb", buffering=0)
    try:
        left = [part for part in parts if len(part)]
        while left:
            written = os.writev(handle.fileno(), left[:MAX_PARTS])
            while left and written >= len(left[0]):
                written -= len(left.pop(0))
            if written:
                left[0] = left[0][written:]
        if hasattr(os, "posix_fadvise"):  # starts writing to the disk at once
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except BaseException:
        handle.close()
        raise
    return handle


def sync_file(handle: BinaryIO) -> None:
    """Wait until a file's bytes are on the disk, and close it."""
    with handle:
        os.fsync(handle.fileno())


def sync_tree(path: Path) -> None:
    """Sync a file, or every file and directory below a directory."""
    for file in path.rglob("*") if path.is_dir() else (path,):
        if file.is_dir():
            sync_directory(file)
        else:
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
    if path.is_dir():
        sync_directory(path)


def sync_directory(path: Path) -> None:
    """Sync the entries of a directory."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two paths atomically; False where the system or the file system cannot."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    return call is not None and call(AT_FDCWD, os.fsencode(first), AT_FDCWD, os.fsencode(second), RENAME_EXCHANGE) == 0


def make_directory(path: Path) -> None:
    """Create a directory and its parents, synced."""
    if path.is_dir():
        return
    if path.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync_directory(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Write or replace a file atomically."""
    replace_files({path: data})


def replace_files(files: Mapping[Path, bytes]) -> None:
    """Write or replace files, each atomically, and none before the disk has the bytes of all."""
    for path in files:
        if path.is_dir():  # also one that has no name, such as `.`
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folders = {path.parent for path in files}
    for folder in folders:
        make_directory(folder)
    temporaries = {path: path.with_name(f".tmp-{os.getpid()}-{path.name}") for path in files}
    try:
        for path, data in files.items():
            write_synced(temporaries[path], data)
        for path, temporary in temporaries.items():
            temporary.replace(path)
    except BaseException:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
        raise
    for folder in folders:
        sync_directory(folder)


def remove_temporaries(directory: Path) -> None:
    """Remove the temporary files of a `replace_files` that was killed."""
    for path in directory.glob(".tmp-*"):
        if path.is_file():
            path.unlink(missing_ok=True)


def to_json(value: Any, indent: int | None = None) -> bytes:
    """Canonical JSON, so that files can be compared byte for byte. NaN, which is not JSON, is rejected."""
    return (json.dumps(value, indent=indent, sort_keys=True, allow_nan=False) + "\n").encode()


def finite(value: Any) -> Any:
    """The same value with null for NaN and infinity, which are not JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def read_bytes(path: Path, limit: int | None = None, first: int | None = None) -> bytes:
    """The bytes of a regular file, or the `first` of them; links and special files are rejected."""
    try:
        opened = open(path, "rb", opener=_without_links)  # noqa: SIM115
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    with opened as file:
        try:
            status = os.fstat(file.fileno())
            size = status.st_size
            if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device might never end
                raise UserError(f"{path}: not a regular file")
            if limit is not None and size > limit:
                raise UserError(f"{path}: {size} bytes, at most {limit} are expected")
            return file.read(size if first is None else first)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error
        except MemoryError as error:
            raise UserError(f"{path}: {size} bytes do not fit into memory") from error


def read_json(path: Path) -> Any:
    """The value of a JSON file, or a UserError."""
    return parse_json(read_bytes(path, MAX_JSON_BYTES), path)


def parse_json(data: bytes | str, path: Path | str) -> Any:
    """The value of a JSON text, or a UserError that names `path`."""
    if len(data) > MAX_JSON_BYTES:
        raise UserError(f"{path}: {len(data)} bytes of JSON, at most {MAX_JSON_BYTES} are expected")
    try:
        return json.loads(data, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not valid JSON") from error


def _finite(text: str) -> float:
    """A finite number: Python's parser accepts NaN and Infinity, which are not JSON, and turns 1e999 into infinity."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value
