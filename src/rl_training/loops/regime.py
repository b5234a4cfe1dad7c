"""A regime: where a run's data comes from, and the loop that learns from it."""

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
    @property
    def parts(self) -> list[Part]:
        """What must be saved of it, in the order of loading."""

    @property
    def source(self) -> Source:
        """Where batches are drawn from."""

    @property
    def envs(self) -> VectorEnv | None:
        """The environments that training steps, if any."""

    @property
    def replay(self) -> ReplayBuffer | None: ...

    def begin(self, learner: Learner) -> None:
        """Start a new run."""

    def restored(self, checkpoint: Checkpoint) -> bool:
        """After the parts were loaded; False if something could not be brought back exactly."""

    def run(self, clock: Clock, learner: Learner, after_step: Callable[[], None]) -> None:
        """Train until the clock stops."""

    def close(self) -> None: ...
