"""Metric rows in files: JSON lines, and a table of comma-separated values."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rl_training.core.checks import UserError
from rl_training.files.atomic import finite, replace_file
from rl_training.files.json_lines import ROW_KEYS

Row = Mapping[str, Any]


class Writer(Protocol):
    """A destination of metric rows."""

    def write(self, rows: Sequence[Row]) -> None:
        """Write the rows of one step, one per seed."""

    def close(self, failed: bool) -> None:
        """Finish; `failed`: the run ends with an exception."""


class JsonLines:
    """A file with one JSON object per line, which `cut` truncates to the checkpoint's offset before the first row."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        # Unbuffered: a row that failed to be written must not be written again when the file is closed.
        self._handle, self._start = path.open("ab", buffering=0), offset
        if os.fstat(self._handle.fileno()).st_size < offset:
            self._handle.close()
            raise UserError(f"{path}: shorter than recorded in its checkpoint; it was cut or replaced")

    def cut(self) -> None:
        """Remove the rows after the checkpoint: they will be written again, and the last one may be incomplete."""
        self._handle.truncate(self._start)
        self._handle.seek(0, os.SEEK_END)

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            data = (json.dumps(finite(row), allow_nan=False) + "\n").encode()
            while data:
                data = data[self._handle.write(data) :]

    @property
    def offset(self) -> int:
        return self._handle.tell()

    def sync(self) -> None:
        os.fsync(self._handle.fileno())

    def close(self, failed: bool = False) -> None:
        self._handle.close()


class CsvFile:
    """The rows as a table: made anew from `rows` on resume, and whenever a row has a new column."""

    def __init__(self, path: Path, rows: Iterable[Row]) -> None:
        self.path = path
        self._columns: list[str] = []
        rows = list(rows)
        self._replace(_columns(self._columns, rows), rows)

    def write(self, rows: Sequence[Row]) -> None:
        columns = _columns(self._columns, rows)
        if columns != self._columns:
            with self.path.open(newline="", encoding="utf-8") as file:
                before = list(csv.DictReader(file))
            self._replace(columns, [*before, *rows])
            return
        with self.path.open("a", newline="", encoding="utf-8") as file:
            file.write(_table(columns, rows))

    def _replace(self, columns: list[str], rows: Sequence[Row]) -> None:
        head = _table(columns, [dict(zip(columns, columns, strict=True))]) if columns else ""
        replace_file(self.path, (head + _table(columns, rows)).encode())
        self._columns = columns

    def close(self, failed: bool) -> None: ...


def _columns(before: Sequence[str], rows: Iterable[Row]) -> list[str]:
    """The columns so far, and new ones in the order of their first row."""
    return list(dict.fromkeys([*before, *(name for row in rows for name in row)]))


def _table(columns: Sequence[str], rows: Iterable[Row]) -> str:
    text = io.StringIO()
    csv.DictWriter(text, columns, lineterminator="\n").writerows(finite(row) for row in rows)
    return text.getvalue()


def numbers(row: Row) -> dict[str, float]:
    """The metrics of a row that are finite numbers, without its step and seed, for writers that take nothing else."""
    return {
        name: value
        for name, value in row.items()
        if name not in ROW_KEYS and isinstance(value, (int, float)) and math.isfinite(value)
    }
