"""The inputs of the engine: losses over parameter groups, the random numbers they need, the source of batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rl_training.engine.networks import Batch
from rl_training.engine.optimizers import Optimizer

Noise = dict[str, Tensor]
Metrics = dict[str, Tensor]
Schedule = Callable[[float], float]  # a function of the share of the run that is done
Due = tuple[str, ...]  # the names of the phases that run at an update
UPDATE = "update"


class LossResult(NamedTuple):
    """The result of a loss."""

    loss: Tensor  # the scalar to minimise
    metrics: Metrics
    row_errors: Tensor | None = None  # (batch,): errors, from which a prioritised replay computes priorities
    carried: Mapping[str, Tensor] = {}  # added to the batch of the later phases of the same update
    running: Mapping[str, Tensor] = {}  # new values of the numbers in `nets.running`
    skip: Tensor | None = None  # true: the seed's parameters and optimizer stay as they are; of a phase `per_seed`
    rate: Tensor | None = None  # the seed's learning rate at this update; of a phase `per_seed`


Loss = Callable[[Any, Batch, Noise], LossResult]  # arguments: `Networks`, a batch, random numbers


@dataclass(frozen=True)
class Phase:
    """One loss and the groups it trains. The other groups get no gradient."""

    name: str
    groups: tuple[str, ...]
    loss: Loss
    every: int = 1  # runs at every `every`-th update
    rate: Schedule | None = None  # the learning rate; None: the learner's
    optimizer: Optimizer | None = None  # None: the learner's
    counted: bool = False  # `batch["update"]` is the number of the update, counted from 1
    per_seed: bool = False  # its loss decides for each seed whether a step is taken, and its rate


@dataclass(frozen=True)
class NoiseSpec:
    """The distribution and shape of random numbers for one seed."""

    kind: str  # "normal" or "uniform"
    shape: tuple[int, ...]

    def draw(self, rng: np.random.Generator) -> NDArray[np.float32]:
        draw = rng.standard_normal if self.kind == "normal" else rng.random
        return draw(self.shape, dtype=np.float32)


class Priorities(Protocol):
    """Draws rows in proportion to their priorities, one set of priorities per seed."""

    def set_beta(self, beta: float) -> None: ...

    def draw(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Row numbers and importance weights, from (seeds, batch) uniform random numbers."""

    def update(self, rows: Tensor, errors: Tensor) -> None:
        """Set the priorities of rows from their errors."""

    def tensors(self) -> list[Tensor]:
        """Every tensor that `update` and new rows change."""


class Pending(Protocol):
    """A replay whose newest vector step may be on its way to the device."""

    def take_unstored(self) -> bool:
        """Whether there is such a step; it is sent, and the caller runs `store_sent`."""

    def store_sent(self) -> None:
        """Store it, by work of the device alone."""


# (row numbers, seeds, update) -> the batch of these rows, with changes that are a function of (seed, update)
Relabel = Callable[[Tensor, Sequence[int], int], Batch]


class Source(Protocol):
    """A source of batches: a replay buffer, a rollout or a dataset, one row axis per seed."""

    @property
    def size_tensor(self) -> Tensor:
        """`size` on the device."""

    @property
    def priorities(self) -> Priorities | None:
        """The priorities of rows; None: all rows are equally likely."""

    @property
    def relabelled(self) -> Relabel | None:
        """Gathers and changes batches on the host; None: batches are as `gather` gives them."""

    @property
    def pending(self) -> Pending | None:
        """The replay that may have a vector step to be stored before an update; None: there is no replay."""

    @property
    def size(self) -> int | NDArray[np.int64]:
        """The number of rows, or (batch,) the number for each position in a batch."""

    def gather(self, indices: Tensor) -> Batch:
        """The rows at (seeds, batch) or (n, seeds, batch) indices, as tensors with those leading axes."""
