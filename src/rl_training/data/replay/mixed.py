"""Where a run that began offline draws from when it goes on online."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.datasets.transition_dataset import ResidentData
from rl_training.data.replay.buffer import ReplayBuffer


class MixedData:
    """A data set and a replay: the first rows of each batch are from the one, the others from the other."""

    priorities = None

    def __init__(
        self, data: ResidentData, replay: ReplayBuffer, *, batch_size: int, share: float, scale: float, shift: float
    ) -> None:
        self.data, self.replay = data, replay
        self.scale, self.shift = scale, shift  # what was done to the data set's rewards, for those of the replay
        self.from_data = round(share * batch_size)
        self.from_replay = batch_size - self.from_data

    @property
    def size(self) -> NDArray[np.int64]:
        """How many rows each place of a batch may be drawn from."""
        return np.repeat([self.data.size, self.replay.size], [self.from_data, self.from_replay])

    @property
    def size_tensor(self) -> Tensor:
        sizes = (self.data.size_tensor.expand(self.from_data), self.replay.size_tensor.expand(self.from_replay))
        return torch.cat(sizes)

    def gather(self, indices: Tensor) -> dict[str, Tensor]:
        recorded = self.data.gather(indices[..., : self.from_data])
        played = self.replay.gather(indices[..., self.from_data :])
        played["rewards"] = played["rewards"] * self.scale + self.shift
        return {name: torch.cat([recorded[name], played[name]], indices.ndim - 1) for name in recorded}
