"""Frames between a parent and its worker process: (kind, size) and `size` bytes, over two pipes.

STEP and ACTIONS contain raw arrays whose layout both sides compute from the spaces; RESULT is empty, since results are
in memory that both share: a picture is larger than what a pipe holds. JSON contains set-up, resets, errors and the end.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from rl_training.envs.host.stepping import Array, Results
from rl_training.envs.spaces import ActionCodec, ObservationCodec

Fields = Sequence[tuple[tuple[int, ...], DTypeLike]]  # shape and dtype of arrays that are next to each other

HEADER = struct.Struct("<QQ")
STEP, RESULT, JSON, ACTIONS = range(4)
DONE = HEADER.pack(RESULT, 0)


class StepBuffers:
    """The STEP frame of `count` rows, and the memory for their results, which the parent and its worker share."""

    def __init__(
        self, count: int, observation: ObservationCodec, action: ActionCodec, names: int, file: int | None = None
    ) -> None:
        """`file`: the parent's descriptor of the shared memory; the parent itself has none yet."""
        self.action_dtype, self.action_shape = action.env_dtype, action.env_shape
        asked: Fields = (((count, *self.action_shape), self.action_dtype), ((count,), np.bool_))
        self.request = bytearray(HEADER.size + _size(asked))
        HEADER.pack_into(self.request, 0, STEP, _size(asked))
        self.actions, self.active = _arrays(memoryview(self.request)[HEADER.size :], asked)
        found: Fields = (
            ((count,), np.float64),
            ((count, names), np.float64),
            ((count, *observation.shape), observation.dtype),
            ((count,), np.bool_),
            ((count,), np.bool_),
        )
        self.file = _shared_file(_size(found)) if file is None else file
        memory = mmap.mmap(self.file, _size(found))
        rewards, infos, obs, terminated, truncated = _arrays(memoryview(memory), found)
        self.results = Results(obs, rewards, terminated, truncated, infos)


def _size(fields: Fields) -> int:
    return sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in fields)


def _arrays(memory: memoryview, fields: Fields) -> list[Array]:
    """Arrays in `memory`, one after the other."""
    arrays, offset = [], 0
    for one in fields:
        (shape, dtype), size = one, _size([one])
        arrays.append(np.frombuffer(memory[offset : offset + size], dtype).reshape(shape))
        offset += size
    return arrays


def _shared_file(size: int) -> int:
    """The descriptor of a file of zeros that has no name, in memory where the system offers that."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("rl_training")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, size)
    return file


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Write all bytes."""
    done = os.write(fd, data)
    while done < len(data):  # a signal may interrupt a long write
        done += os.write(fd, memoryview(data)[done:])


def json_frame(value: Any) -> bytes:
    """A frame with a JSON value."""
    payload = json.dumps(value).encode()
    return HEADER.pack(JSON, len(payload)) + payload


def read_exactly(fd: int, buffer: bytearray | memoryview) -> None:
    """Fill `buffer`, or raise EOFError."""
    view = memoryview(buffer)
    while view:
        count = os.readv(fd, [view])
        if count == 0:
            raise EOFError
        view = view[count:]


def read_frame(fd: int, step: bytearray | None = None) -> tuple[int, bytearray]:
    """The next frame's kind and payload; a STEP is read into `step`."""
    header = bytearray(HEADER.size)
    read_exactly(fd, header)
    kind, size = HEADER.unpack(header)
    if kind == STEP and step is not None:
        read_exactly(fd, memoryview(step)[HEADER.size :])
        return kind, step
    payload = bytearray(size)
    read_exactly(fd, payload)
    return kind, payload
