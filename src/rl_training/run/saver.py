"""Writing a run's state to a checkpoint, and reading it back."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.read import Checkpoint, DamagedCheckpoint
from rl_training.checkpoint.schema import check_envs, check_metrics, check_priorities, check_rows, load_learner
from rl_training.checkpoint.write import remove_leftovers, remove_old, save_checkpoint
from rl_training.config.train_config import TrainConfig
from rl_training.data.replay.buffer import ReplayBuffer, whole_steps
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.spaces import space_to_dict
from rl_training.files.atomic import replace_file
from rl_training.run.agent import Agent

SEGMENT_NAME = re.compile(r"replay_(\d{12,18})_(\d{12,18})\.safetensors")
MOST_SEGMENTS = 1024  # then the replay is written anew: linking many small files would cost more than it saves
SEGMENT_BYTES = 1 << 28  # of a segment at most: `restore` holds one of them beside the replay, twice
THREADS = 4  # as many files as a save writes
MOST_FAILURES = 3  # saves in a row that may fail (a full disk) before the run stops


class Saver:
    """Saves checkpoints of one run. The replay is cut into segments that are written once and linked afterwards."""

    def __init__(
        self,
        root: Path,
        config: TrainConfig,
        newest: Checkpoint | None,
        note: Callable[[str], None],
        replay_changed: bool = False,
    ) -> None:
        self.root, self.config, self.newest, self.note = root, config, newest, note
        self.replay_changed = replay_changed  # rows of `newest` are others now: they cannot be linked
        self.failures = 0
        self._pool = ThreadPoolExecutor(THREADS)
        self._rotation: Future[None] | None = None

    @property
    def newest_step(self) -> int | None:
        return self.newest.step if self.newest is not None else None

    def save(
        self, step: int, state: dict[str, Any], agent: Agent, envs: SeededEnvs | None, replay: ReplayBuffer | None
    ) -> Checkpoint | None:
        """None if the disk refused; the checkpoints before it are untouched. Offline there is nothing but the agent."""
        self.finish_rotation()
        tensors: dict[str, Any] = {"learner": agent.learner.state_dict()}
        full = {
            "episodes": [0] * (len(self.config.seed_list) * self.config.num_envs),
            "unlogged": [],
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
            piece = whole_steps(SEGMENT_BYTES * replay.capacity // replay.nbytes, replay.num_envs)
            for first in range(start, replay.added, piece):
                last = min(first + piece, replay.added)
                tensors[f"replay_{first:012d}_{last:012d}"] = replay.read(first, last)
            if replay.priorities is not None:  # any of them may have changed: written whole, 8 bytes a transition
                rows = replay.places(replay.oldest(), replay.added)
                tensors["priorities"] = replay.priorities.state(rows)
            full |= {name: snapshot[name] for name in ("episodes", "unlogged")} | {"added": replay.added}
        try:
            self.newest = save_checkpoint(self.root, step, full, tensors, self.newest, linked, pool=self._pool)
            self.replay_changed = False
        except OSError as error:
            self.failures += 1
            self.note(f"checkpoint at step {step} could not be written: {error.strerror}; the previous one is kept")
            if self.failures >= MOST_FAILURES:
                what = f"{self.failures} checkpoints in a row could not be written ({error.strerror})"
                raise OSError(error.errno, what, str(self.root)) from error
            return None
        self.failures = 0
        # The new one is safe: nobody needs to wait until the old ones are gone.
        self._rotation = self._pool.submit(remove_old, self.root, self.config.keep_checkpoints, self.newest)
        return self.newest

    def finish_rotation(self) -> None:
        try:
            if self._rotation is not None:
                self._rotation.result()
        except OSError as error:  # the next rotation tries again
            self.note(f"old checkpoints could not be removed: {error.strerror}")
        self._rotation = None

    def close(self) -> None:
        """Nothing but whole checkpoints stays behind."""
        self.finish_rotation()
        self._pool.shutdown()
        remove_leftovers(self.root)

    def _segments_still_held(self, replay: ReplayBuffer) -> tuple[tuple[str, ...], int]:
        """Segments of the previous checkpoint with rows the ring still holds, and the first row not saved yet."""
        oldest, linked, start = replay.oldest(), [], replay.oldest()
        if self.replay_changed:
            return (), oldest
        if self.newest is not None and len(self.newest.names("replay_")) >= MOST_SEGMENTS:
            return (), oldest
        for name in self.newest.names("replay_") if self.newest else []:
            _, stop = segment_rows(name)
            if stop > oldest:
                linked.append(name)
                start = max(start, stop)
        if linked and self.newest is not None and not self.newest.there().keys() >= set(linked):
            return (), oldest  # someone deleted it: the whole replay is written anew
        return tuple(linked), start


class BestAgents:
    """The best policy of each seed so far, as a file. One that the disk refused is kept and written later."""

    def __init__(self, directory: Path, note: Callable[[str], None]) -> None:
        self.directory, self.note = directory, note
        self.waiting: dict[int, bytes] = {}  # by seed

    def save(self, seed: int, agent: bytes) -> None:
        self.waiting[seed] = agent
        self.write()

    def write(self) -> None:
        for seed, agent in list(self.waiting.items()):
            try:
                replace_file(self.directory / f"seed_{seed}_best.safetensors", agent)
                del self.waiting[seed]
            except OSError as error:
                self.note(f"best agent of seed {seed} could not be written: {error.strerror}; it is tried again")


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
    if not checkpoint.names("envs."):  # of a run that only now goes on online
        if checkpoint.state["added"] or checkpoint.names("replay_"):
            raise DamagedCheckpoint(f"{checkpoint.path.name} damaged (its environments are missing)")
        envs.reset_all()
        return True
    added = int(checkpoint.state["added"])
    oldest = added - min(added, replay.capacity)
    reached = oldest
    for name in checkpoint.names("replay_"):
        start, stop = segment_rows(name)
        rows = checkpoint.tensors(name)
        check_rows(checkpoint, name, rows, replay.segment_layout(stop - start, rows), envs.spec)
        skip = max(oldest - start, 0)
        if skip < stop - start:
            replay.write(start, rows, skip)
            reached = stop if start <= reached else -1
    if reached != added:
        raise DamagedCheckpoint(f"{checkpoint.path.name} damaged (transitions are missing from its replay)")
    replay.finish_writing(added)
    if replay.priorities is not None:
        priorities = checkpoint.tensors("priorities.safetensors")
        check_priorities(checkpoint, priorities, replay.seeds, replay.size)
        replay.priorities.load(replay.places(oldest, added), priorities)
    check_metrics(checkpoint, learner, replay)
    stored = checkpoint.tensors("envs.safetensors")
    check_envs(checkpoint, stored, envs)
    exact = envs.restore(
        {
            "episodes": checkpoint.state["episodes"],
            "unlogged": checkpoint.state["unlogged"],
            "actions": [stored[f"actions_{row}"].numpy() for row in range(envs.size)],
            "states": [stored[f"state_{row}"].numpy() for row in range(envs.size)],
            "obs": stored["obs"].numpy(),
        }
    )
    replay.cut_off(envs.lost)
    return exact
