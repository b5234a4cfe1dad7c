"""Opening zip archives that others wrote: whatever is wrong with one is a UserError of one line."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rl_training.core.checks import UserError, one_line

COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what numpy and Stable-Baselines3 write
# What damaged archives and what is in them raise: an offset of 2**63 an OverflowError, a declared size a MemoryError.
READ_ERRORS = (
    zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, OverflowError, ValueError,
    MemoryError,
)  # fmt: skip


def open_archive(file: Path | IO[bytes], wrong: str) -> zipfile.ZipFile:
    """Open an archive; the message for a file that is none starts with `wrong`."""
    try:
        return zipfile.ZipFile(file)
    except READ_ERRORS as error:
        raise UserError(f"{wrong} ({one_line(error)})") from error


@contextmanager
def open_member(archive: zipfile.ZipFile, name: str, where: str) -> Iterator[IO[bytes]]:
    """Open a file of an archive; what goes wrong while it is read is damage to `where`.

    `read` without a size unpacks all there is, whatever the archive declares.
    """
    try:
        if archive.getinfo(name).compress_type not in COMPRESSIONS:
            raise NotImplementedError("neither stored nor deflated")
        with archive.open(name) as member:
            yield member
    except UserError:
        raise
    except READ_ERRORS as error:
        raise UserError(f"{where} is damaged ({one_line(error) or type(error).__name__})") from error
