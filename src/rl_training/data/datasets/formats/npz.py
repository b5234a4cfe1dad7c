"""Reading untrusted npz archives without numpy's loader, and writing npz archives.

Nothing is evaluated or unpickled, declared sizes are compared with the archive's before anything is allocated, and
arrays are read block by block.
"""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from rl_training.core.checks import UserError, one_line, shown
from rl_training.data.datasets.array_store import BLOCK_BYTES, Array, layout_bytes

# What numpy writes; an element type is a code such as <f4, or a list for records, which are rejected.
HEADER = re.compile(
    r"\{'descr': (?P<descr>'[^']*'|\[.*\]), 'fortran_order': (?P<fortran>True|False), "
    r"'shape': \((?P<shape>[\d, ]*)\), \} *\n"
)
MAX_HEADER_BYTES = 1 << 16
MAX_MEMBERS = 1000
MAX_AXES, MAX_ELEMENTS = 32, 1 << 48
NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
TEXT = re.compile(r"[<>|=]?[US]\d{1,6}")
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what numpy writes
_READ_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError)


class NpzReader:
    """The arrays of an open archive: their shapes and dtypes (`layout`) and values (`read`)."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, wanted: tuple[str, ...]) -> None:
        self.path, self.archive, self.wanted = path, archive, wanted
        self.layout: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        self._stored: dict[str, tuple[np.dtype[Any], bool]] = {}
        names = [info.filename for info in archive.infolist()]
        if len(set(names)) != len(names) or len(names) > MAX_MEMBERS:
            raise UserError(f"{path}: has {len(names)} members, at most {MAX_MEMBERS} with distinct names are expected")
        for name in names:
            if name.endswith(".npy"):
                self._read_layout(name)
        self.names = list(self.layout)

    def _read_layout(self, name: str) -> None:
        with self._open(name) as member:
            shape, dtype, fortran = self._header(member, name)
            start = member.tell()
        if dtype.kind in "US":  # a comment
            return
        declared, stored = layout_bytes({name: (shape, dtype)}), self.archive.getinfo(name).file_size - start
        key = name.removesuffix(".npy")
        if declared != stored:
            raise UserError(f"{self.path}: {shown(key)} declares {declared} bytes and holds {stored}")
        self.layout[key] = (shape, dtype.newbyteorder("="))
        self._stored[key] = (dtype, fortran)

    def _header(self, member: IO[bytes], name: str) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
        where = f"{self.path}: {shown(name.removesuffix('.npy'))}"
        start = _exactly(member, 8)
        if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
            raise UserError(f"{where} is not a numpy array")
        length = int.from_bytes(_exactly(member, 2 if start[6] == 1 else 4), "little")
        if length > MAX_HEADER_BYTES:
            raise UserError(f"{where} has a header of {length} bytes")
        found = HEADER.fullmatch(_exactly(member, length).decode("latin-1"))
        if found is None:
            raise UserError(f"{where} has a header that numpy does not write")
        descr = found["descr"].strip("'")
        if "O" in descr:
            raise UserError(f"{where} contains Python objects, which are never loaded")
        comment = TEXT.fullmatch(descr) and name.removesuffix(".npy") not in self.wanted
        if not NUMBERS.fullmatch(descr) and not comment:
            raise UserError(f"{where} has elements of type {shown(descr)}, numbers of at most 64 bits are expected")
        shape = tuple(int(length) for length in found["shape"].replace(" ", "").split(",") if length)
        if len(shape) > MAX_AXES or math.prod(max(length, 1) for length in shape) >= MAX_ELEMENTS:
            raise UserError(f"{where} is of shape {shown(str(shape))}, which no array has")
        return shape, np.dtype(descr), found["fortran"] == "True"

    def read(self, name: str, out: Array) -> None:
        """Fill `out`, of the shape and dtype in `layout`, block by block."""
        dtype, fortran = self._stored[name]
        # In Fortran's order the first axis runs fastest, as if the transposed array were stored.
        numbers: Any = out.T.flat if fortran else out.reshape(-1)
        step = max(BLOCK_BYTES // dtype.itemsize, 1)
        with self._open(f"{name}.npy") as member:
            self._header(member, f"{name}.npy")
            for start in range(0, out.size, step):
                count = min(step, out.size - start)
                numbers[start : start + count] = np.frombuffer(_exactly(member, count * dtype.itemsize), dtype)

    @contextmanager
    def _open(self, name: str) -> Iterator[IO[bytes]]:
        try:
            if self.archive.getinfo(name).compress_type not in COMPRESSIONS:
                raise NotImplementedError("compressed in a way that numpy does not write")
            with self.archive.open(name) as member:
                yield member
        except UserError:
            raise
        except _READ_ERRORS as error:
            key = shown(name.removesuffix(".npy"))
            raise UserError(f"{self.path}: {key} is damaged ({one_line(error) or type(error).__name__})") from error


def _exactly(member: IO[bytes], count: int) -> bytes:
    data = member.read(count)
    if len(data) != count:
        raise EOFError("it ends too early")
    return data


@contextmanager
def open_npz(path: Path, wanted: tuple[str, ...]) -> Iterator[NpzReader]:
    """Open an archive, of which `wanted` must be numbers."""
    try:
        archive = zipfile.ZipFile(path)
    except _READ_ERRORS as error:
        raise UserError(f"{path}: not an npz file ({one_line(error)})") from error
    with archive:
        yield NpzReader(path, archive, wanted)


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to a compressed archive."""
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
