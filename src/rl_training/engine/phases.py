"""What an algorithm gives the engine: losses over parameter groups, the random numbers they need, where data is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rl_training.engine.networks import Batch
from rl_training.engine.optimizers import Adam

Noise = dict[str, Tensor]
Metrics = dict[str, Tensor]
Schedule = Callable[[float], float]  # of the share of the run that is done
Due = tuple[str, ...]  # the names of the phases that run at an update
UPDATE = "update"


class LossResult(NamedTuple):
    """What a loss returns."""

    loss: Tensor  # what is minimised
    metrics: Metrics
    row_errors: Tensor | None = None  # (batch,): the errors that become priorities of a prioritised replay
    carried: Mapping[str, Tensor] = {}  # for the later phases of the same update, which find it in their batch


Loss = Callable[[Any, Batch, Noise], LossResult]  # of the algorithm's `Networks`, a batch and random numbers


@dataclass(frozen=True)
class Phase:
    """One loss and the groups it trains. The other groups reach the loss as they are and get no gradient."""

    name: str
    groups: tuple[str, ...]
    loss: Loss
    every: int = 1  # trained at each `every`-th update
    rate: Schedule | None = None  # the learning rate; None: the learner's
    optimizer: Adam | None = None  # None: the learner's
    counted: bool = False  # the batch has the number of the update, counted from 1, as `update`


@dataclass(frozen=True)
class NoiseSpec:
    """Random numbers one update needs, per seed."""

    kind: str  # "normal" or "uniform"
    shape: tuple[int, ...]

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        draw = rng.standard_normal if self.kind == "normal" else rng.random
        return draw(self.shape, dtype=np.float32)


class Priorities(Protocol):
    """Draws rows in proportion to their priorities, one set of priorities per seed."""

    def set_beta(self, beta: float) -> None: ...

    def draw(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """(seeds, batch) uniform numbers to row numbers and importance weights."""

    def update(self, rows: Tensor, errors: Tensor) -> None:
        """The errors of rows just used become their priorities."""

    def tensors(self) -> list[Tensor]:
        """Everything `update` changes."""


class Source(Protocol):
    """Where batches come from: a replay buffer or a dataset, one row axis per seed."""

    @property
    def size_tensor(self) -> Tensor:
        """`size` on the device."""

    @property
    def priorities(self) -> Priorities | None:
        """None: every row is as likely as any other."""

    @property
    def size(self) -> int | NDArray[np.int64]:
        """How many rows there are, or (batch,) how many for each place of a batch."""

    def gather(self, indices: Tensor) -> Batch:
        """(seeds, batch) row numbers, or (n, seeds, batch), to tensors with those leading axes."""
