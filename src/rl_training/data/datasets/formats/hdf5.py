"""Reading untrusted HDF5 files, and writing HDF5 files.

A file may refer to other files, name filters for which libraries on this machine would be loaded, or declare sizes that
it does not have. So an HDF5 dataset is checked before it is read: plain numbers, stored in this file, known filters.
"""

from __future__ import annotations

import stat
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.core.checks import UserError, one_line, shown
from rl_training.core.machine import gibibytes
from rl_training.data.datasets.array_store import BLOCK_BYTES, Array, blocks, layout_bytes

# deflate, shuffle, fletcher32, szip, nbit, scaleoffset, and h5py's own lzf: others would be loaded as plugins.
KNOWN_FILTERS = {1, 2, 3, 4, 5, 6, 32000}
# The best ratio of deflate is 1:1032; a larger declared one is never valid.
MAX_RATIO = 1100
DEFLATE, FLETCHER32, LZF = 1, 3, 32000
COMPRESSORS = {DEFLATE, 4, LZF}
MAX_LZF_CHUNK = 1 << 20  # bytes of a packed chunk: unpacking is tried again with a larger buffer until it fits
SMALL = 1 << 20  # bytes that any dataset may declare
MAX_CHUNK = 1 << 30
READ_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError, MemoryError, AttributeError, zlib.error)
SAFE_CHUNK = 1 << 18  # bytes of a packed chunk: by `MAX_RATIO` they unpack to less than 300 MB
CHUNK_OVERHEAD = 1 << 12  # what filters may add to numbers that cannot be compressed


def h5py_module() -> Any:
    """The module h5py, or a UserError that names the extra to install."""
    try:
        import h5py
    except ImportError as error:
        raise UserError("HDF5 and Minari datasets need h5py: pip install 'rl-training[offline]'") from error
    return h5py


@contextmanager
def open_file(path: Path) -> Iterator[Any]:
    """Open a file read-only; any error is a UserError of one line."""
    h5py = h5py_module()
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path}: not a regular file")
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file") from error
    except READ_ERRORS as error:
        raise UserError(f"{path}: not a usable HDF5 file ({one_line(error) or type(error).__name__})") from error


def member(group: Any, name: str, where: str) -> Any:
    """The member of a group, which must be in this file: links are not followed."""
    h5py = h5py_module()
    link = group.get(name, getlink=True)
    if link is None:
        raise UserError(f"{where}: has no {shown(name)}")
    if not isinstance(link, h5py.HardLink):
        kind = "an external link" if isinstance(link, h5py.ExternalLink) else "a link"
        raise UserError(f"{where}: {shown(name)} is {kind}, which is not followed")
    return group[name]


def dataset(group: Any, name: str, where: str) -> Any:
    """An HDF5 dataset of plain numbers in the file itself; any other is rejected."""
    h5py = h5py_module()
    found = member(group, name, where)
    where = f"{where}: {shown(name)}"
    if isinstance(found, h5py.Group):
        raise UserError(f"{where} is a group, one array is expected (Dict and Tuple spaces are not supported)")
    if not isinstance(found, h5py.Dataset) or found.shape is None:
        raise UserError(f"{where} is not an array")
    dtype = found.dtype
    if dtype.hasobject:
        raise UserError(f"{where} has elements of variable length or Python objects, which are never loaded")
    if dtype.kind not in "fiub" or dtype.itemsize > 8 or dtype.shape:
        raise UserError(f"{where} has elements of type {shown(str(dtype))}, numbers of at most 64 bits are expected")
    if found.is_virtual or found.external:
        raise UserError(f"{where} is stored in other files, which are not read")
    plist = found.id.get_create_plist()
    filters = [plist.get_filter(number)[0] for number in range(plist.get_nfilters())]
    if set(filters) - KNOWN_FILTERS:
        raise UserError(f"{where} is compressed with filter {min({*filters} - KNOWN_FILTERS)}, which is not supported")
    if sum(number in COMPRESSORS for number in filters) > 1:
        raise UserError(f"{where} is compressed more than once, which is not supported")
    declared, stored = layout_bytes({name: (found.shape, dtype)}), int(found.id.get_storage_size())
    if declared > SMALL + MAX_RATIO * stored:
        raise UserError(f"{where} declares {gibibytes(declared)} (shape {found.shape}) and holds {stored} bytes")
    if found.chunks:
        _check_chunks(found, layout_bytes({name: (found.chunks, dtype)}), filters, where)
    return found


def _check_chunks(found: Any, declared: int, filters: list[int], where: str) -> None:
    """Reject chunks that would unpack to more than they declare: HDF5 unpacks a chunk as a whole."""
    if declared > MAX_CHUNK:
        raise UserError(f"{where} is stored in chunks of shape {found.chunks}, which are too large")
    maximum = declared + declared // 8 + CHUNK_OVERHEAD
    largest, unverified = 0, []

    def inspect(chunk: Any) -> None:
        nonlocal largest
        largest = max(largest, chunk.size)
        if DEFLATE in filters and chunk.size > SAFE_CHUNK:
            unverified.append(chunk.chunk_offset)

    found.id.chunk_iter(inspect)
    if largest > maximum:
        raise UserError(f"{where} declares chunks of {declared} bytes and holds one of {largest}")
    if LZF in filters and largest > MAX_LZF_CHUNK:
        raise UserError(f"{where} is stored in lzf chunks of {largest} bytes, at most {MAX_LZF_CHUNK} are supported")
    if unverified and set(filters[filters.index(DEFLATE) + 1 :]) - {FLETCHER32}:
        raise UserError(f"{where} has filters after its compression, which is not supported")
    for offset in unverified:
        skipped, packed = found.id.read_direct_chunk(offset)  # skipped: a bit for each filter
        if not skipped >> filters.index(DEFLATE) & 1 and _inflates_beyond(packed, maximum):
            raise UserError(f"{where} declares chunks of {declared} bytes and holds one that is larger")


def _inflates_beyond(packed: bytes, size: int) -> bool:
    """Whether data unpack to more than `size` bytes, without unpacking all of them at once."""
    stream = zlib.decompressobj()
    for start in range(0, len(packed), SAFE_CHUNK):
        piece = packed[start : start + SAFE_CHUNK]
        while piece and not stream.eof and size >= 0:
            size -= len(stream.decompress(piece, BLOCK_BYTES))
            piece = stream.unconsumed_tail
    return size < 0


def fill(source: Any, out: Array, first: int = 0) -> None:
    """Read rows of an HDF5 dataset from `first` on, block by block, in the machine's byte order."""
    if not out.size:
        return
    for rows in blocks(out):
        selection = np.s_[first + rows.start : first + rows.stop]
        source.read_direct(out, selection, np.s_[rows.start : rows.stop])


class Hdf5Reader:
    """The arrays at the root of a file, as in D4RL: their shapes and dtypes (`layout`) and values (`read`)."""

    def __init__(self, path: Path, file: Any, names: tuple[str, ...]) -> None:
        self.path, self.file = path, file
        self.names = set(file.keys())  # including links, which `name in file` would follow
        present = [name for name in names if name in self.names]
        self._datasets = {name: dataset(file, name, str(path)) for name in present}
        self.layout = {name: (found.shape, found.dtype.newbyteorder("=")) for name, found in self._datasets.items()}

    def read(self, name: str, out: Array) -> None:
        fill(self._datasets[name], out)


@contextmanager
def open_hdf5(path: Path, names: tuple[str, ...]) -> Iterator[Hdf5Reader]:
    """Open a file, of which `names` may be read."""
    with open_file(path) as file:
        yield Hdf5Reader(path, file, names)


class _Output:
    """A new file for h5py that never raises, since HDF5 crashes where it cannot close; `check` raises later."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("xb+", buffering=0)  # a buffer would be written by `seek`
        self.failure: BaseException | None = None
        self.seek, self.tell, self.read, self.readinto = (
            self.file.seek, self.file.tell, self.file.read, self.file.readinto,
        )  # fmt: skip

    def write(self, data: Any) -> int:
        left = memoryview(data)
        try:
            while left and self.failure is None:
                left = left[self.file.write(left) :]
        except OSError as error:
            self.failure = error
        return len(data)

    def truncate(self, size: int) -> int:
        try:
            return self.file.truncate(size) if self.failure is None else size
        except OSError as error:
            self.failure = error
            return size

    def flush(self) -> None:
        """Nothing to flush: there is no buffer."""

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure


def write_file(path: Path, fill: Callable[[Any, Callable[[], None]], None], **how: Any) -> None:
    """Write a new HDF5 file. `fill` gets it, and a function to call between blocks that raises the first error."""
    output = _Output(path)

    def make() -> None:
        with output.file, h5py_module().File(output, "w", **how) as file:
            fill(file, output.check)

    with ThreadPoolExecutor(1) as worker:  # signal handlers, which may raise, run in the main thread, never within HDF5
        try:
            worker.submit(make).result()
        except BaseException as error:
            output.failure = output.failure or error
    output.check()


def write_hdf5(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to the root of a new file."""

    def fill_file(file: Any, check: Callable[[], None]) -> None:
        for name, array in arrays.items():
            created = file.create_dataset(name, array.shape, array.dtype, compression="gzip", shuffle=True)
            for rows in blocks(array):
                check()
                created[rows] = array[rows]

    write_file(path, fill_file)
