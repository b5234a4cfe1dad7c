"""Returns, lengths and numbers from the info of training episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.envs.episode_metrics import WINDOW, episode_metrics, info_means

Array = NDArray[Any]


class EpisodeStatistics:
    """Means over the last episodes of each seed."""

    def __init__(self, seeds: int, num_envs: int, info_metrics: Sequence[str] = ()) -> None:
        self.num_envs = num_envs
        self.open_returns = np.zeros(seeds * num_envs)
        self.open_lengths = np.zeros(seeds * num_envs, np.int64)
        self.returns: list[list[float]] = [[] for _ in range(seeds)]
        self.lengths: list[list[int]] = [[] for _ in range(seeds)]
        self.finished = [0] * seeds
        self.infos: dict[str, list[list[float]]] = {name: [[] for _ in range(seeds)] for name in info_metrics}

    def count(self, rewards: Array, ended: Array, infos: Array | None = None) -> None:
        """Count one step of every environment; `infos` has the numbers of those whose episode ended."""
        self.open_returns += rewards
        self.open_lengths += 1
        if ended.any():
            for row in np.flatnonzero(ended):
                seed = int(row) // self.num_envs
                self.returns[seed] = [*self.returns[seed], float(self.open_returns[row])][-WINDOW:]
                self.lengths[seed] = [*self.lengths[seed], int(self.open_lengths[row])][-WINDOW:]
                self.finished[seed] += 1
                if infos is not None:
                    self._count_infos(seed, infos[row].tolist())
            self.open_returns[ended] = 0
            self.open_lengths[ended] = 0

    def _count_infos(self, seed: int, numbers: Sequence[float]) -> None:
        for by_seed, value in zip(self.infos.values(), numbers, strict=True):
            if math.isfinite(value):
                by_seed[seed] = [*by_seed[seed], value][-WINDOW:]

    def rows(self) -> list[dict[str, Any]]:
        """Each seed's metrics."""
        by_seed = zip(self.returns, self.lengths, self.finished, strict=True)
        return [
            {**info_means({name: of[seed] for name, of in self.infos.items()}, "rollout/"), **episode_metrics(*counted)}
            for seed, counted in enumerate(by_seed)
        ]

    def state(self) -> dict[str, Any]:
        return {
            "open_returns": self.open_returns.tolist(),
            "open_lengths": self.open_lengths.tolist(),
            "returns": self.returns,
            "lengths": self.lengths,
            "finished": self.finished,
            "infos": self.infos,
        }

    def load(self, state: dict[str, Any]) -> None:
        self.open_returns = np.array(state["open_returns"], np.float64)
        self.open_lengths = np.array(state["open_lengths"], np.int64)
        self.returns = [list(window) for window in state["returns"]]
        self.lengths = [list(window) for window in state["lengths"]]
        self.finished = list(state["finished"])
        saved = state.get("infos", {})
        self.infos = {name: [list(window) for window in saved.get(name, new)] for name, new in self.infos.items()}

    def forget(self, envs: Sequence[int]) -> None:
        """Reset the open episodes of these environments, which could not be restored."""
        self.open_returns[list(envs)] = 0
        self.open_lengths[list(envs)] = 0
