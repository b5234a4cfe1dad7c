"""Writers of a run's metric rows: JSON lines always, TensorBoard if enabled; others by callback."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rl_training.core.checks import UserError
from rl_training.files.atomic import finite

Row = Mapping[str, Any]


class Writer(Protocol):
    """A destination of metric rows."""

    def write(self, rows: Sequence[Row]) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """A file with one JSON object per line, truncated to the checkpoint's offset on resume."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        # Unbuffered: a row that failed to be written must not be written again when the file is closed.
        self._handle = path.open("ab", buffering=0)
        if os.fstat(self._handle.fileno()).st_size < offset:
            self._handle.close()
            raise UserError(f"{path}: shorter than recorded in its checkpoint; it was cut or replaced")
        # Rows after the checkpoint will be written again, and the last one may be incomplete.
        self._handle.truncate(offset)
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

    def close(self) -> None:
        self._handle.close()


class TensorBoard:
    """TensorBoard event files, one directory per seed (extra `tensorboard`)."""

    def __init__(self, run_dir: Path, seeds: tuple[int, ...], step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("tensorboard is not installed; pip install 'rl-training[tensorboard]'") from error
        self._writers = {
            seed: SummaryWriter(str(run_dir / "tensorboard" / f"seed_{seed}"), purge_step=step or None)
            for seed in seeds
        }

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            writer = self._writers[row["seed"]]
            for name, value in row.items():
                if "/" in name and isinstance(value, (int, float)):
                    writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
