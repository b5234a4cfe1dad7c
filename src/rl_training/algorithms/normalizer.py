"""Observations standardised by the learner: its statistics are saved, resumed and exported with it.

The networks see (obs - mean) * scale from the parameter group `normalizer`, which no loss trains. Statistics may run
along with training (`observe`) or be those of a data set (`fix`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.engine.engine import LARGEST_COUNT, Engine
from rl_training.engine.phases import Batch, Groups, Metrics, Noise, Phase

Array = NDArray[Any]
GROUP = "normalizer"
EPSILON = 1e-8  # added to the variance: a number that never changes stays what it is


class ObservationNormalizer:
    """Welford's running mean and variance for each seed, in float64 and in the order of collection."""

    def __init__(self, seeds: int, obs_dim: int, limit: float, running: bool = True) -> None:
        self.limit, self.running = limit, running
        self.count = 0  # observations of each seed: they run in lockstep
        self.mean = np.zeros((seeds, obs_dim))
        self.squares = np.zeros((seeds, obs_dim))  # sums of squared deviations from the mean

    def members(self) -> list[dict[str, Tensor]]:
        """The group before anything was seen: observations pass as they are."""
        seeds, size = self.mean.shape
        return [{"mean": torch.zeros(size), "scale": torch.ones(size)} for _ in range(seeds)]

    def observe(self, obs: Array, engine: Engine) -> None:
        """Count the observations (seeds, rows, obs_dim) of a step in, and show the networks the new statistics."""
        for row in range(obs.shape[1]):  # one by one: a sum over rows would round differently with other seeds
            self.count += 1
            new = obs[:, row].astype(np.float64)
            before = new - self.mean
            self.mean += before / self.count
            self.squares += before * (new - self.mean)
        self.fix(engine, self.mean, 1 / np.sqrt(self.squares / self.count + EPSILON))

    def remember(self, engine: Engine, count: int) -> None:
        """Take up what the networks see as the statistics of `count` observations: an agent's file has no more."""
        group = {name: view.cpu().double().numpy() for name, view in engine.groups()[GROUP].items()}
        self.count, self.mean = count, group["mean"]
        with np.errstate(all="ignore"):  # a file may hold any numbers
            self.squares = np.maximum(1 / np.square(group["scale"]) - EPSILON, 0) * count

    def start_from(self, other: ObservationNormalizer) -> None:
        """The statistics of one seed, for every seed to continue."""
        self.count = other.count
        self.mean[:], self.squares[:] = other.mean[0], other.squares[0]

    @staticmethod
    def fix(engine: Engine, mean: Array, scale: Array) -> None:
        """Statistics from elsewhere, such as a data set: (obs_dim,) for all seeds or (seeds, obs_dim)."""
        for name, values in (("mean", mean), ("scale", scale)):
            view = engine.groups()[GROUP][name]
            view.copy_(torch.from_numpy(np.asarray(values, np.float32)).expand_as(view))

    # --- what the networks see -----------------------------------------------------------------------------------
    def normalized(self, groups: Groups, obs: Tensor) -> Tensor:
        return ((obs - groups[GROUP]["mean"]) * groups[GROUP]["scale"]).clamp(-self.limit, self.limit)

    def for_phase(self, phase: Phase) -> Phase:
        def on_normalized(groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
            seen = {name: self.normalized(groups, batch[name]) for name in ("obs", "next_obs")}
            return phase.loss(groups, {**batch, **seen}, noise)

        return replace(phase, loss=on_normalized)

    def for_policy(self, policy: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def on_normalized(groups: Groups, obs: Tensor, *rest: Tensor) -> Tensor:
            return policy(groups, self.normalized(groups, obs), *rest)

        return on_normalized

    # --- state ---------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        return {
            "normalizer.count": torch.tensor(self.count),
            "normalizer.mean": torch.from_numpy(self.mean.copy()),
            "normalizer.squares": torch.from_numpy(self.squares.copy()),
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        for name, mine in self.state().items():
            have, mine_is = (f"{one.dtype} {tuple(one.shape)}" for one in (state[name], mine))
            if have != mine_is:
                raise ValueError(f"{name} is {have}, this learner's is {mine_is}")
        count, mean, squares = (state[name].cpu() for name in self.state())
        if not 0 <= count < LARGEST_COUNT or not (squares >= 0).all():
            raise ValueError("normalizer.count and normalizer.squares must be >= 0")
        self.count, self.mean, self.squares = int(count), mean.numpy().copy(), squares.numpy().copy()
