"""Writing a run's state to a checkpoint, and reading it back."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.base import Learner
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.envs.spaces import space_to_dict
from rl_training.envs.vector import SeededEnvs
from rl_training.experiment.checkpointing import Checkpoint, DamagedCheckpoint, remove_old, save_checkpoint
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.agents import Agent
from rl_training.runtime.run_state import check_envs, check_rows, load_learner

SEGMENT_NAME = re.compile(r"replay_(\d{12,18})_(\d{12,18})\.safetensors")
MOST_SEGMENTS = 1024  # then the replay is written anew as one: linking many small files would cost more than it saves
MOST_FAILURES = 3  # saves in a row that may fail (a full disk) before the run stops


class Saver:
    """Saves checkpoints of one run. The replay is cut into segments that are written once and linked afterwards."""

    def __init__(self, root: Path, config: TrainConfig, newest: Checkpoint | None, note: Callable[[str], None]) -> None:
        self.root, self.config, self.newest, self.note = root, config, newest, note
        self.failures = 0

    def save(
        self, step: int, state: dict[str, Any], agent: Agent, envs: SeededEnvs | None, replay: ReplayBuffer | None
    ) -> Checkpoint | None:
        """None if the disk refused; the checkpoints before it are untouched. Offline there is nothing but the agent."""
        tensors: dict[str, Any] = {"learner": agent.learner.state_dict()}
        full = {
            "episodes": [0] * (len(self.config.seed_list) * self.config.num_envs),
            "added": 0,
            **state,
            "config": self.config.to_dict(),
            "observation_space": space_to_dict(agent.observation.space),
            "action_space": space_to_dict(agent.action.space),
        }
        linked: tuple[str, ...] = ()
        if envs is not None and replay is not None:
            linked, start = self._segments_still_held(replay)
            snapshot = envs.snapshot()
            tensors["envs"] = {
                "obs": torch.from_numpy(snapshot["obs"]),
                **{f"actions_{row}": torch.from_numpy(log) for row, log in enumerate(snapshot["actions"])},
                **{f"state_{row}": torch.from_numpy(state) for row, state in enumerate(snapshot["states"])},
            }
            if replay.added > start:
                tensors[f"replay_{start:012d}_{replay.added:012d}"] = replay.read(start, replay.added)
            full |= {"episodes": snapshot["episodes"], "added": replay.added}
        try:
            self.newest = save_checkpoint(self.root, step, full, tensors, self.newest, linked)
        except OSError as error:
            self.failures += 1
            self.note(f"checkpoint at step {step} could not be written: {error.strerror}; the previous one is kept")
            if self.failures >= MOST_FAILURES:
                what = f"{self.failures} checkpoints in a row could not be written ({error.strerror})"
                raise OSError(error.errno, what, str(self.root)) from error
            return None
        self.failures = 0
        try:
            remove_old(self.root, self.config.keep_checkpoints)
        except OSError as error:  # the new one is safe; the next rotation tries again
            self.note(f"old checkpoints could not be removed: {error.strerror}")
        return self.newest

    def _segments_still_held(self, replay: ReplayBuffer) -> tuple[tuple[str, ...], int]:
        """Segments of the previous checkpoint with rows the ring still holds, and the first row not saved yet."""
        oldest, linked, start = replay.oldest(), [], replay.oldest()
        if self.newest is not None and len(self.newest.names("replay_")) >= MOST_SEGMENTS:
            return (), oldest
        for name in self.newest.names("replay_") if self.newest else []:
            _, stop = segment_rows(name)
            if stop > oldest:
                linked.append(name)
                start = max(start, stop)
        if self.newest is not None and not all((self.newest.path / name).is_file() for name in linked):
            return (), oldest  # someone deleted it: the whole replay is written anew
        return tuple(linked), start


def segment_rows(name: str) -> tuple[int, int]:
    match = SEGMENT_NAME.fullmatch(name)
    if match is None or int(match[1]) >= int(match[2]):
        raise DamagedCheckpoint(f"{name}: not a segment of the replay")
    return int(match[1]), int(match[2])


def restore(checkpoint: Checkpoint, learner: Learner, envs: SeededEnvs | None, replay: ReplayBuffer | None) -> bool:
    """Put everything back. False if an environment could not be brought to the same state."""
    load_learner(checkpoint, learner)
    if envs is None or replay is None:
        return True
    added = int(checkpoint.state["added"])
    oldest = added - min(added, replay.capacity)
    reached = oldest
    for name in checkpoint.names("replay_"):
        start, stop = segment_rows(name)
        rows = checkpoint.tensors(name)
        check_rows(checkpoint, name, rows, stop - start, replay.seeds, envs.shape)
        skip = max(oldest - start, 0)
        if skip < stop - start:
            replay.write(start + skip, {field: tensor[:, skip:] for field, tensor in rows.items()})
            reached = stop if start <= reached else -1
    if reached != added:
        raise DamagedCheckpoint(f"{checkpoint.path.name} damaged (transitions are missing from its replay)")
    replay.finish_writing(added)
    stored = checkpoint.tensors("envs.safetensors")
    check_envs(checkpoint, stored, envs)
    return envs.restore(
        {
            "episodes": checkpoint.state["episodes"],
            "actions": [stored[f"actions_{row}"].numpy() for row in range(envs.size)],
            "states": [stored[f"state_{row}"].numpy() for row in range(envs.size)],
            "obs": stored["obs"].numpy(),
        }
    )
