"""Batches from a dataset and a replay, for a run that continues online."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.datasets.transition_dataset import ResidentData
from rl_training.data.replay.buffer import ReplayBuffer


class MixedData:
    """A dataset and a replay: the first rows of each batch are from the dataset, the others from the replay."""

    priorities = None
    relabelled = None

    def __init__(
        self, data: ResidentData, replay: ReplayBuffer, *, batch_size: int, share: float, scale: float, shift: float
    ) -> None:
        self.data, self.replay = data, replay
        self.scale, self.shift = scale, shift  # of the dataset's rewards, applied to the replay's
        self.from_data = round(share * batch_size)
        self.from_replay = batch_size - self.from_data

    @property
    def pending(self) -> ReplayBuffer:
        return self.replay

    @property
    def size(self) -> NDArray[np.int64]:
        """The number of rows from which each position of a batch is drawn."""
        return np.repeat([self.data.size, self.replay.size], [self.from_data, self.from_replay])

    @property
    def size_tensor(self) -> Tensor:
        sizes = (self.data.size_tensor.expand(self.from_data), self.replay.size_tensor.expand(self.from_replay))
        return torch.cat(sizes)

    def gather(self, indices: Tensor) -> dict[str, Tensor]:
        """The batch of row numbers (..., seeds, batch), with those leading axes."""
        offline = self.data.gather(indices[..., : self.from_data])
        online = self.replay.gather(indices[..., self.from_data :])
        online["rewards"] = online["rewards"] * self.scale + self.shift
        return {name: torch.cat([offline[name], online[name]], indices.ndim - 1) for name in offline}
