"""The files of offline runs of Weights & Biases: LevelDB's log format, one protobuf message per record.

A run that was killed has lost the rows of its last block, so what a segment has is read from the file.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

BLOCK, FILE_HEADER = 32768, 7
HEADER = struct.Struct("<IHB")  # checksum, length, kind
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def segments(run_dir: Path, run_id: str) -> list[Path]:
    """The files of a run's offline segments, the oldest first."""
    return sorted((run_dir / "wandb").glob(f"offline-run-*-{run_id}/run-{run_id}.wandb"))


def wait_for_new_name(run_dir: Path, run_id: str) -> None:
    """Wait while a new segment would have the name of one that is there: names have the second of the start."""
    while any((run_dir / "wandb").glob(f"*run-{time.strftime('%Y%m%d_%H%M%S')}-{run_id}")):
        time.sleep(0.05)


def wait_until_written(paths: Iterable[Path], seconds: float) -> None:
    """Wait for the last record of finished segments: another process writes it after `finish` has returned."""
    end = time.monotonic() + seconds
    for path in paths:
        while not any(record.HasField("exit") for record in records(path)) and time.monotonic() < end:
            time.sleep(0.05)


def newest_steps(paths: Iterable[Path], names: Sequence[str]) -> dict[str, int]:
    """By name, the last step at which any of these segments has that metric; -1 without one."""
    newest = dict.fromkeys(names, -1)
    for record in (record for path in paths for record in records(path) if record.HasField("history")):
        for name in {item.key or "/".join(item.nested_key) for item in record.history.item} & newest.keys():
            newest[name] = max(newest[name], int(record.history.step.num))
    return newest


def records(path: Path) -> Iterator[Any]:
    """The complete records of a segment."""
    from wandb.proto import wandb_internal_pb2

    protocol: Any = wandb_internal_pb2
    for data in _messages(path.read_bytes()):
        record = protocol.Record()
        record.ParseFromString(data)
        yield record


def _messages(data: bytes) -> Iterator[bytes]:
    """The messages, put together from their parts in blocks; the last one may be missing its end."""
    at, parts = FILE_HEADER, b""
    while at + HEADER.size <= len(data):
        if BLOCK - at % BLOCK < HEADER.size:  # the rest of a block is filled up
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = HEADER.unpack_from(data, at)
        at += HEADER.size
        if kind not in (FULL, FIRST, MIDDLE, LAST) or at + length > len(data):
            return
        parts = data[at : at + length] if kind in (FULL, FIRST) else parts + data[at : at + length]
        at += length
        if kind in (FULL, LAST):
            yield parts
