"""Arrays in untrusted npy files and npz archives, read without numpy's loader: nothing is evaluated or unpickled."""

from __future__ import annotations

import math
import re
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError, shown

Array = NDArray[Any]
# What numpy writes; an element type is a code such as <f4, or a list for records, which are rejected.
HEADER = re.compile(
    r"\{'descr': (?P<descr>'[^']*'|\[.*\]), 'fortran_order': (?P<fortran>True|False), "
    r"'shape': \((?P<shape>[\d, ]*)\), \} *\n"
)
MAX_HEADER_BYTES = 1 << 16
MAX_AXES, MAX_ELEMENTS = 32, 1 << 48
NUMBERS = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248])")
TEXT = re.compile(r"[<>|=]?[US]\d{1,6}")


class Header(NamedTuple):
    """The layout of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool

    @property
    def nbytes(self) -> int:
        """The bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], where: str, text: bool = False) -> Header:
    """The header of an array of numbers, with `text` also of strings; `where` begins the message of an error."""
    start = read_exactly(file, 8)
    if start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise UserError(f"{where} is not a numpy array")
    length = int.from_bytes(read_exactly(file, 2 if start[6] == 1 else 4), "little")
    if length > MAX_HEADER_BYTES:
        raise UserError(f"{where} has a header of {length} bytes")
    found = HEADER.fullmatch(read_exactly(file, length).decode("latin-1"))
    if found is None:
        raise UserError(f"{where} has a header that numpy does not write")
    descr = found["descr"].strip("'")
    if "O" in descr:
        raise UserError(f"{where} contains Python objects, which are never loaded")
    if not NUMBERS.fullmatch(descr) and not (text and TEXT.fullmatch(descr)):
        raise UserError(f"{where} has elements of type {shown(descr)}, numbers of at most 64 bits are expected")
    shape = tuple(int(length) for length in found["shape"].replace(" ", "").split(",") if length)
    if len(shape) > MAX_AXES or math.prod(max(length, 1) for length in shape) >= MAX_ELEMENTS:
        raise UserError(f"{where} is of shape {shown(str(shape))}, which no array has")
    return Header(shape, np.dtype(descr), found["fortran"] == "True")


def check_size(header: Header, size: int, where: str) -> None:
    """Compare what a header declares with the bytes that follow it, before anything is allocated."""
    if header.nbytes != size:
        raise UserError(f"{where} declares {header.nbytes} bytes and holds {size}")


def read_array(file: IO[bytes], size: int, where: str) -> Array:
    """An array of numbers in a file of `size` bytes, of which no more are read: its header must say as much."""
    header = read_header(file, where)
    check_size(header, size - file.tell(), where)
    numbers = np.frombuffer(read_exactly(file, header.nbytes), header.dtype)
    return numbers.reshape(header.shape, order="F" if header.fortran else "C")


def read_exactly(file: IO[bytes], count: int) -> bytes:
    """So many bytes of a file that must have them."""
    data = file.read(count)
    if len(data) != count:
        raise EOFError("it ends too early")
    return data
