"""What an algorithm tells the engine: losses over groups of parameters, the random numbers they need, where data is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rl_training.engine.groups import Params

Groups = dict[str, Params]
Batch = dict[str, Tensor]
Noise = dict[str, Tensor]
Metrics = dict[str, Tensor]
Loss = Callable[[Groups, Batch, Noise], tuple[Tensor, Metrics]]
Pattern = tuple[bool, ...]  # which phases run at an update
ROW_ERRORS = "row_errors"  # not a metric: each row's error (batch,), from which prioritised replay learns
CARRIED = "carried"  # not a metric: a tensor that the later phases of the same update find in their batch


@dataclass(frozen=True)
class Phase:
    """One loss and the groups it trains. The other groups reach the loss as they are and get no gradient."""

    groups: tuple[str, ...]
    loss: Loss
    every: int = 1  # trained at each `every`-th update


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

    def learn(self, rows: Tensor, errors: Tensor) -> None:
        """The errors of rows just used become their priorities."""

    def tensors(self) -> list[Tensor]:
        """Everything `learn` changes."""


class Source(Protocol):
    """Where batches come from: a replay buffer or a data set, one row axis per seed."""

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
