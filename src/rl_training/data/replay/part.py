"""The replay as a part of a run: cut into segments that are written once and linked by later checkpoints."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from rl_training.checkpoint.parts import PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint, DamagedCheckpoint
from rl_training.checkpoint.schema import ReplayState
from rl_training.core.specs import EnvSpec
from rl_training.data.replay.buffer import ReplayBuffer, whole_steps
from rl_training.data.replay.priorities import MAX_PRIORITY
from rl_training.files.tensor_files import Tensors

SEGMENT_NAME = re.compile(r"replay_(\d{12,18})_(\d{12,18})\.safetensors")
MAX_SEGMENTS = 1024  # then the whole replay is written: linking many small files would take longer
MAX_SEGMENT_BYTES = 1 << 28  # `load` holds one segment beside the replay, twice
PRIORITIES = "priorities.safetensors"


class ReplayPart:
    """Saves and loads a replay buffer."""

    name = "replay"

    def __init__(self, replay: ReplayBuffer, spec: EnvSpec) -> None:
        self.replay, self.spec = replay, spec
        self.changed_since: Checkpoint | None = None  # whose rows have changed since and cannot be linked

    def state(self, previous: Checkpoint | None) -> PartState:
        replay, files = self.replay, dict[str, Tensors]()
        replay.flush()
        linked, start = self._reusable_segments(previous)
        length = whole_steps(MAX_SEGMENT_BYTES * replay.capacity // replay.nbytes, replay.num_envs)
        for first in range(start, replay.added, length):
            last = min(first + length, replay.added)
            files[f"replay_{first:012d}_{last:012d}"] = replay.read(first, last)
        if replay.priorities is not None:  # any may have changed: all are written, 8 bytes per transition
            files["priorities"] = replay.priorities.state(replay.places(replay.oldest(), replay.added))
        return PartState({"added": replay.added, "capacity": replay.capacity}, files, linked)

    def _reusable_segments(self, previous: Checkpoint | None) -> tuple[tuple[str, ...], int]:
        """Segments of the previous checkpoint with rows that are still in the ring, and the first row not saved yet."""
        oldest = self.replay.oldest()
        names = previous.names("replay_") if previous is not None and previous is not self.changed_since else []
        held = [name for name in names if segment_rows(name)[1] > oldest]
        deleted = previous is not None and not previous.file_inodes().keys() >= set(held)
        if not held or len(names) >= MAX_SEGMENTS or deleted:
            return (), oldest
        return tuple(held), max(oldest, *(segment_rows(name)[1] for name in held))

    def check(self, stored: StoredPart) -> None:
        added, names = stored.parse(ReplayState).added, stored.checkpoint.names("replay_")
        reached = self._oldest(added)
        for start, stop in map(segment_rows, names):
            if stop > reached:
                reached = stop if start <= reached else -1
        if reached != added:
            raise DamagedCheckpoint(f"{stored.checkpoint.path.name} damaged (transitions are missing from its replay)")

    def load(self, stored: StoredPart) -> None:
        replay, added = self.replay, stored.parse(ReplayState).added
        oldest = self._oldest(added)
        for name in stored.checkpoint.names("replay_"):
            start, stop = segment_rows(name)
            if stop > oldest:
                rows = stored.tensors(name)
                check_segment(stored, name, rows, replay.segment_layout(stop - start, rows), self.spec)
                replay.write(start, rows, max(oldest - start, 0))
        replay.finish_writing(added)
        if replay.priorities is not None:
            priorities = stored.tensors(PRIORITIES)
            check_priorities(stored, priorities, replay.seeds, replay.size)
            replay.priorities.load(replay.places(oldest, added), priorities)

    def _oldest(self, added: int) -> int:
        return added - min(added, self.replay.capacity)


def segment_rows(name: str) -> tuple[int, int]:
    """The first transition of a segment and the one after its last, from the file's name."""
    match = SEGMENT_NAME.fullmatch(name)
    if match is None or int(match[1]) >= int(match[2]):
        raise DamagedCheckpoint(f"{name}: not a segment of the replay")
    return int(match[1]), int(match[2])


def check_segment(
    stored: StoredPart,
    name: str,
    rows: dict[str, Tensor],
    layout: dict[str, tuple[tuple[int, ...], torch.dtype]],
    spec: EnvSpec,
) -> None:
    """Reject a segment with wrong tensors, or with invalid actions."""
    stored.check_tensors(name, rows, layout)
    if not spec.action.contains(rows["actions"]):
        raise stored.invalid(f"{name}: actions must be below {spec.action.choices}")


def check_priorities(stored: StoredPart, found: dict[str, Tensor], seeds: int, size: int) -> None:
    """Reject priorities of wrong shapes or values."""
    layout = {"priorities": ((seeds, size), torch.int64), "highest": ((seeds, 1), torch.int64)}
    stored.check_tensors(PRIORITIES, found, layout)
    for key, minimum in (("priorities", 0), ("highest", 1)):
        if not bool(((found[key] >= minimum) & (found[key] <= MAX_PRIORITY)).all()):
            raise stored.invalid(f"{PRIORITIES}: {key} must be from {minimum} to {MAX_PRIORITY}")
    if not bool(found["priorities"].any(1).all()) and size:
        raise stored.invalid(f"{PRIORITIES}: a seed without any priority above 0 cannot draw a batch")
