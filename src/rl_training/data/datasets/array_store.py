"""Allocation of a dataset's arrays: in memory, or memory-mapped from an unnamed file when they are too large."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError
from rl_training.core.machine import free_memory, gibibytes

Array = NDArray[Any]
ArrayLayout = Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
MEMORY_SHARE = 0.5  # of the free memory; a dataset beyond that is mapped from the disk
BLOCK_BYTES = 1 << 24  # processed or read at a time


def layout_bytes(layout: ArrayLayout) -> int:
    """The bytes of all arrays."""
    return sum(dtype.itemsize * _product(shape) for shape, dtype in layout.values())


def allocate(layout: ArrayLayout, where: str, memory_share: float = MEMORY_SHARE) -> dict[str, Array]:
    """An array for each entry of `layout`; a UserError if neither memory nor disk has the space."""
    needed, free = layout_bytes(layout), free_memory()
    if needed <= memory_share * free:
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}
    folder = _folder()
    on_disk = shutil.disk_usage(folder).free
    if needed > 0.9 * on_disk:
        free_space = f"{gibibytes(int(memory_share * free))} of memory and {gibibytes(on_disk)} on disk are available"
        raise UserError(f"{where}: needs {gibibytes(needed)}; {free_space}")
    return {name: _mapped(folder, shape, dtype) for name, (shape, dtype) in layout.items()}


def memory_share_for_copy(*arrays: Array) -> float:
    """The `memory_share` for a copy of these arrays: memory-mapped ones are copied to the disk."""
    return 0.0 if any(isinstance(array, np.memmap) for array in arrays) else MEMORY_SHARE


def _folder() -> Path:
    # Not the system's temporary folder, which is often in memory.
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rl_training"
        cache.mkdir(parents=True, exist_ok=True)
        return cache
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return Path(tempfile.gettempdir())


def _mapped(folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if not _product(shape):
        return np.zeros(shape, dtype)
    with tempfile.TemporaryFile(dir=folder) as file:  # unnamed: removed with the array or the process
        file.truncate(dtype.itemsize * _product(shape))
        return np.memmap(file, dtype, "r+", shape=shape)


def blocks(array: Array) -> Iterator[slice]:
    """Slices of rows of at most BLOCK_BYTES each, at least one row."""
    row = max(array.dtype.itemsize * _product(array.shape[1:]), 1)
    step = max(BLOCK_BYTES // row, 1)
    for start in range(0, len(array), step):
        yield slice(start, min(start + step, len(array)))


def _product(shape: tuple[int, ...]) -> int:
    size = 1  # Python's integers do not overflow, unlike numpy's, and a file may declare any shape
    for length in shape:
        size *= length
    return size
