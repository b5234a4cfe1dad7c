"""Normalises observations; the statistics are part of the learner's state and of exported agents.

The networks get (obs - mean) * scale with the values of the parameter group `normalizer`, which no loss trains: running
statistics (`observe`) or those of a dataset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from rl_training.engine.engine import MAX_COUNT
from rl_training.engine.groups import Groups, Params
from rl_training.tensors.state import check_shapes

GROUP = "normalizer"
EPSILON = 1e-8  # added to the variance, which is 0 for a constant entry


class ObservationNormalizer:
    """Welford's running mean and variance for each seed, in float64 and in the order of collection."""

    def __init__(self, seeds: int, obs_dim: int, limit: float, running: bool = True) -> None:
        self.limit, self.running = limit, running
        self.count = 0  # observations per seed, equal for all seeds
        self.mean = torch.zeros(seeds, obs_dim, dtype=torch.float64)
        self.squares = torch.zeros(seeds, obs_dim, dtype=torch.float64)  # sums of squared deviations from the mean

    def members(self) -> list[Params]:
        """The initial values of the group, per seed: the identity."""
        seeds, size = self.mean.shape
        return [{"mean": torch.zeros(size), "scale": torch.ones(size)} for _ in range(seeds)]

    def observe(self, obs: Tensor) -> Params:
        """Update the statistics with a step's vectors (seeds, rows, obs_dim). Returns the group's new values."""
        if obs.is_cuda:
            return self._observe_on_device(obs)
        new, mean, squares = obs.numpy(), self.mean.numpy(), self.squares.numpy()
        for row in range(new.shape[1]):  # one by one: a sum over rows would round differently with more seeds
            self.count += 1
            one = new[:, row].astype(np.float64)
            before = one - mean
            mean += before / self.count
            squares += before * (one - mean)
        scale = 1 / np.sqrt(squares / self.count + EPSILON)
        return {"mean": self.mean, "scale": torch.from_numpy(scale)}

    def observe_all(self, obs: Tensor) -> Params:
        """The same for many rows at once; on a CPU seed by seed, since sums over more seeds round differently."""
        if obs.is_cuda:
            return self._observe_on_device(obs)
        before, rows = self.count, obs.shape[1]
        self.count += rows
        for seed in range(len(obs)):
            own = slice(seed, seed + 1)
            self._merge(self.mean[own], self.squares[own], obs[own], before)
        scale = 1 / np.sqrt(self.squares.numpy() / self.count + EPSILON)
        return {"mean": self.mean, "scale": torch.from_numpy(scale)}

    def _observe_on_device(self, obs: Tensor) -> Params:
        """All rows at once, since there may be thousands; nothing leaves the device."""
        self.mean = self.mean.to(obs.device, non_blocking=True)
        self.squares = self.squares.to(obs.device, non_blocking=True)
        before = self.count
        self.count += obs.shape[1]
        self._merge(self.mean, self.squares, obs, before)
        return {"mean": self.mean, "scale": (self.squares / self.count + EPSILON).rsqrt()}

    @staticmethod
    def _merge(mean: Tensor, squares: Tensor, obs: Tensor, before: int) -> None:
        """Merge the statistics of `before` observations with those of new rows, in place (Chan et al. 1979)."""
        rows, new = obs.shape[1], obs.double()
        count = before + rows
        batch_mean = new.mean(1)
        difference = batch_mean - mean
        mean += difference * (rows / count)
        squares += (new - batch_mean.unsqueeze(1)).square().sum(1)
        squares += difference.square() * (before * rows / count)

    def restore(self, group: Mapping[str, Tensor], count: int) -> None:
        """Restore the statistics of `count` observations from the group's values, which are all an agent file has."""
        self.count, self.mean = count, group["mean"].cpu().double()
        with np.errstate(all="ignore"):  # a file may hold any numbers
            scale = group["scale"].cpu().double().numpy()
            self.squares = torch.from_numpy(np.maximum(1 / np.square(scale) - EPSILON, 0) * count)

    def start_from(self, others: Sequence[ObservationNormalizer]) -> None:
        """Copy the statistics of one other's first seed to every seed, or of one other's to each."""
        self.count = others[0].count
        for index in range(len(self.mean)):
            other = others[index % len(others)]
            self.mean[index], self.squares[index] = other.mean[0], other.squares[0]

    # --- normalising ---------------------------------------------------------------------------------------------
    def normalized(self, groups: Groups, numbers: Tensor) -> Tensor:
        return ((numbers - groups[GROUP]["mean"]) * groups[GROUP]["scale"]).clamp(-self.limit, self.limit)

    # --- state ---------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        return {
            "normalizer.count": torch.tensor(self.count),
            "normalizer.mean": self.mean.clone(),
            "normalizer.squares": self.squares.clone(),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        check_shapes(state, self.state(), "learner")
        count, mean, squares = (state[name].cpu() for name in self.state())
        if not 0 <= count < MAX_COUNT or not (squares >= 0).all():
            raise ValueError("normalizer.count and normalizer.squares must be >= 0")
        self.count, self.mean, self.squares = int(count), mean.clone(), squares.clone()
