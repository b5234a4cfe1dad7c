"""`metrics.jsonl` and `evaluations.jsonl`: one JSON object a line, cut back to the checkpoint on resume."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError


class JsonLines:
    """An append-only log that knows how long it is."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        # Unbuffered: a row that a full disk refused must not come up again when the file is closed.
        self._handle = path.open("ab", buffering=0)
        if os.fstat(self._handle.fileno()).st_size < offset:
            self._handle.close()
            raise UserError(f"{path}: shorter than its checkpoint says; it was cut or replaced")
        # Rows written after the checkpoint will be written again, and the last one may be half a line.
        self._handle.truncate(offset)
        self._handle.seek(0, os.SEEK_END)

    def write(self, row: Mapping[str, Any]) -> None:
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


def finite(value: Any) -> Any:
    """NaN and infinity are not JSON: null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


class TensorBoard:
    """The same rows for TensorBoard, one directory a seed (extra `tensorboard`)."""

    def __init__(self, run_dir: Path, seeds: tuple[int, ...], step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("tensorboard is not installed; pip install 'rl-training[tensorboard]'") from error
        self._writers = {
            seed: SummaryWriter(str(run_dir / "tensorboard" / f"seed_{seed}"), purge_step=step or None)
            for seed in seeds
        }

    def write(self, row: Mapping[str, Any]) -> None:
        writer = self._writers[row["seed"]]
        for name, value in row.items():
            if "/" in name and isinstance(value, (int, float)):
                writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
