"""Reading untrusted npz archives without numpy's loader, array by array and block by block, and writing them."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from rl_training.core.checks import UserError, shown
from rl_training.data.datasets.array_store import BLOCK_BYTES, Array
from rl_training.files.archives import open_archive, open_member
from rl_training.files.npy import Header, check_size, read_exactly, read_header

MAX_MEMBERS = 1000


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
            header = self._header(member, name)
            if header.dtype.kind in "US":  # a comment
                return
            check_size(header, self.archive.getinfo(name).file_size - member.tell(), self._where(name))
        key = name.removesuffix(".npy")
        self.layout[key] = (header.shape, header.dtype.newbyteorder("="))
        self._stored[key] = (header.dtype, header.fortran)

    def _header(self, member: IO[bytes], name: str) -> Header:
        return read_header(member, self._where(name), text=name.removesuffix(".npy") not in self.wanted)

    def _where(self, name: str) -> str:
        return f"{self.path}: {shown(name.removesuffix('.npy'))}"

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
                numbers[start : start + count] = np.frombuffer(read_exactly(member, count * dtype.itemsize), dtype)

    def _open(self, name: str) -> AbstractContextManager[IO[bytes]]:
        return open_member(self.archive, name, self._where(name))


@contextmanager
def open_npz(path: Path, wanted: tuple[str, ...]) -> Iterator[NpzReader]:
    """Open an archive, of which `wanted` must be numbers."""
    with open_archive(path, f"{path}: not an npz file") as archive:
        yield NpzReader(path, archive, wanted)


def write_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to a compressed archive."""
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
