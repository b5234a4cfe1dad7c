"""What an algorithm tells the engine: losses over groups of parameters, the random numbers they need, where data is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from rl_training.engine.groups import Params

Groups = dict[str, Params]
Batch = dict[str, Tensor]
Noise = dict[str, Tensor]
Metrics = dict[str, Tensor]
Loss = Callable[[Groups, Batch, Noise], tuple[Tensor, Metrics]]
Pattern = tuple[bool, ...]  # which phases run at an update


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


class Source(Protocol):
    """Where batches come from: a replay buffer or a data set, one row axis per seed."""

    size_tensor: Tensor

    @property
    def size(self) -> int: ...

    def gather(self, indices: Tensor) -> Batch:
        """(seeds, batch) row numbers, or (n, seeds, batch), to tensors with those leading axes."""
