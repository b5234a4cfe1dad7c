"""Returns and lengths of training episodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.envs.episode_metrics import WINDOW, episode_metrics

Array = NDArray[Any]


class EpisodeStatistics:
    """Means over the last episodes of each seed."""

    def __init__(self, seeds: int, num_envs: int) -> None:
        self.num_envs = num_envs
        self.open_returns = np.zeros(seeds * num_envs)
        self.open_lengths = np.zeros(seeds * num_envs, np.int64)
        self.returns: list[list[float]] = [[] for _ in range(seeds)]
        self.lengths: list[list[int]] = [[] for _ in range(seeds)]
        self.finished = [0] * seeds

    def count(self, rewards: Array, ended: Array) -> None:
        """Count one step of every environment."""
        self.open_returns += rewards
        self.open_lengths += 1
        if ended.any():
            for row in np.flatnonzero(ended):
                seed = int(row) // self.num_envs
                self.returns[seed] = [*self.returns[seed], float(self.open_returns[row])][-WINDOW:]
                self.lengths[seed] = [*self.lengths[seed], int(self.open_lengths[row])][-WINDOW:]
                self.finished[seed] += 1
            self.open_returns[ended] = 0
            self.open_lengths[ended] = 0

    def rows(self) -> list[dict[str, Any]]:
        """Each seed's metrics."""
        by_seed = zip(self.returns, self.lengths, self.finished, strict=True)
        return [episode_metrics(returns, lengths, finished) for returns, lengths, finished in by_seed]

    def state(self) -> dict[str, Any]:
        return {
            "open_returns": self.open_returns.tolist(),
            "open_lengths": self.open_lengths.tolist(),
            "returns": self.returns,
            "lengths": self.lengths,
            "finished": self.finished,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.open_returns = np.array(state["open_returns"], np.float64)
        self.open_lengths = np.array(state["open_lengths"], np.int64)
        self.returns = [list(window) for window in state["returns"]]
        self.lengths = [list(window) for window in state["lengths"]]
        self.finished = list(state["finished"])

    def forget(self, envs: Sequence[int]) -> None:
        """Reset the open episodes of these environments, which could not be restored."""
        self.open_returns[list(envs)] = 0
        self.open_lengths[list(envs)] = 0
