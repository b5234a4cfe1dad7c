"""Durable small files: written under another name, synced, renamed. A reader sees the old file or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError

MAX_JSON_BYTES = 64 * 1024 * 1024


def write_synced(path: Path, data: bytes) -> None:
    """A new file whose bytes are on the disk when this returns."""
    with path.open("wb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    try:
        write_synced(temporary, data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


def to_json(value: Any) -> bytes:
    """One canonical form, so that a file can be compared with what it should be. NaN is refused: it is not JSON."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def read_bytes(path: Path, limit: int | None = None) -> bytes:
    """A regular file's bytes; links and special files are refused rather than followed."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    with os.fdopen(handle, "rb") as file:
        try:
            size = os.fstat(file.fileno()).st_size
            if limit is not None and size > limit:
                raise UserError(f"{path}: {size} bytes, at most {limit} are expected")
            return file.read() if limit is None else file.read(limit + 1)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_bytes(path, MAX_JSON_BYTES))
    except (ValueError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path}: not valid JSON") from error
