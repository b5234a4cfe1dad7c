"""The interface of a regime: the source of a run's data, and its training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.parts import Part
from rl_training.checkpoint.read import Checkpoint
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.engine.phases import Source
from rl_training.envs.base import VectorEnv
from rl_training.loops.clock import Clock


class Regime(Protocol):
    """A source of data and the loop that trains on it."""

    @property
    def parts(self) -> list[Part]:
        """The parts to save, in the order of loading."""

    @property
    def source(self) -> Source:
        """The source of batches."""

    @property
    def envs(self) -> VectorEnv | None:
        """The environments that training steps, if any."""

    @property
    def replay(self) -> ReplayBuffer | None:
        """The replay buffer, if any."""

    def begin(self, learner: Learner) -> None:
        """Prepare a new run."""

    def restored(self, checkpoint: Checkpoint) -> bool:
        """Finish restoring after all parts are loaded; False if something could not be restored exactly."""

    def run(self, clock: Clock, learner: Learner, after_step: Callable[[], None]) -> None:
        """Train until the clock stops."""

    def close(self) -> None: ...
