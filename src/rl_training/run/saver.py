"""Saves the parts of a run to checkpoints, and restores them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.parts import Part, PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint, DamagedCheckpoint
from rl_training.checkpoint.schema import LEARNER
from rl_training.checkpoint.write import remove_leftovers, remove_old, save_checkpoint
from rl_training.config.train_config import TrainConfig
from rl_training.engine.phases import Source
from rl_training.files.atomic import replace_file
from rl_training.run.agent import load_learner

Note = Callable[[str], None]
THREADS = 4  # the number of files in a save
MAX_FAILURES = 3  # consecutive saves that may fail (a full disk) before the run fails


class Saver:
    """Saves the checkpoints of one run, and removes old ones."""

    def __init__(
        self,
        root: Path,
        config: TrainConfig,
        parts: Sequence[Part],
        newest: Checkpoint | None,
        note: Note,
    ) -> None:
        self.root, self.config, self.parts, self.newest, self.note = root, config, parts, newest, note
        self.failures = 0
        self._pool = ThreadPoolExecutor(THREADS)
        self._rotation: Future[None] | None = None

    @property
    def newest_step(self) -> int | None:
        return self.newest.step if self.newest is not None else None

    def save(self, step: int, about: dict[str, Any]) -> Checkpoint | None:
        """Save a checkpoint; None if it could not be written. `about`: values that belong to no part."""
        self.finish_rotation()
        states = {part.name: part.state(self.newest) for part in self.parts}
        values = {name: one.values for name, one in states.items()}
        state = {**about, "step": step, "config": self.config.to_dict(), "parts": values}
        files = {name: tensors for one in states.values() for name, tensors in one.files.items()}
        linked = tuple(name for one in states.values() for name in one.linked)
        try:
            self.newest = save_checkpoint(self.root, step, state, files, self.newest, linked, pool=self._pool)
        except OSError as error:
            self.failures += 1
            self.note(f"checkpoint at step {step} could not be written: {error.strerror}; the previous one is kept")
            if self.failures >= MAX_FAILURES:
                what = f"{self.failures} checkpoints in a row could not be written ({error.strerror})"
                raise OSError(error.errno, what, str(self.root)) from error
            return None
        self.failures = 0
        # In the background: training need not wait until old checkpoints are removed.
        self._rotation = self._pool.submit(remove_old, self.root, self.config.keep_checkpoints, self.newest)
        return self.newest

    def finish_rotation(self) -> None:
        """Wait until old checkpoints are removed."""
        try:
            if self._rotation is not None:
                self._rotation.result()
        except OSError as error:  # the next rotation tries again
            self.note(f"old checkpoints could not be removed: {error.strerror}")
        self._rotation = None

    def close(self) -> None:
        """Finish, and remove incomplete checkpoints."""
        self.finish_rotation()
        self._pool.shutdown()
        remove_leftovers(self.root)


class LearnerPart:
    """The part of a learner: weights, targets, optimizer state, normaliser and counters."""

    name = "learner"

    def __init__(self, learner: Learner, source: Source) -> None:
        self.learner, self.source = learner, source

    def state(self, previous: Checkpoint | None) -> PartState:
        return PartState(files={"learner": self.learner.state_dict()})

    def check(self, stored: StoredPart) -> None:
        if LEARNER not in stored.checkpoint.files:
            raise DamagedCheckpoint(f"{stored.checkpoint.path.name} damaged (no {LEARNER})")

    def load(self, stored: StoredPart) -> None:
        """Load the tensors. The source must be loaded before: checking the metric names needs a batch."""
        load_learner(self.learner, stored.tensors(LEARNER), stored.checkpoint.path)
        try:
            self.learner.check_metrics(self.source)
        except ValueError as error:
            raise stored.invalid(f"{LEARNER}: {error}") from error


class BestAgents:
    """Saves the best agent of each seed as a file; one that could not be written is retried later."""

    def __init__(self, directory: Path, note: Note) -> None:
        self.directory, self.note = directory, note
        self.pending: dict[int, bytes] = {}  # by seed

    def save(self, seed: int, agent: bytes) -> None:
        self.pending[seed] = agent
        self.write()

    def write(self) -> None:
        for seed, agent in list(self.pending.items()):
            try:
                replace_file(self.directory / f"seed_{seed}_best.safetensors", agent)
                del self.pending[seed]
            except OSError as error:
                self.note(f"best agent of seed {seed} could not be written: {error.strerror}; it is tried again")
