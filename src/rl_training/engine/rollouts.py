"""Learning from a rollout: targets computed on the device, then epochs of minibatches, each row once in an epoch.

On CUDA the targets, the order of an epoch and its updates are captured graphs, and nothing waits for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from rl_training.core.rng import STREAM_IDS, stream
from rl_training.data.rollout import RolloutLayout
from rl_training.engine.gradients import entry, stacked
from rl_training.engine.groups import Groups
from rl_training.engine.networks import Batch
from rl_training.engine.phases import NoiseSpec, Source
from rl_training.engine.training import Training
from rl_training.tensors import device_rng

STREAM = "minibatch"


class Targets(NamedTuple):
    """What an algorithm computes from a complete rollout before it learns from it."""

    columns: Mapping[str, Tensor]  # (environments, steps)
    running: Mapping[str, Tensor] = {}  # new values of the numbers in `nets.running`


ComputeTargets = Callable[[Any, Batch], Targets]  # arguments: `Networks`, all columns of one seed's rollout


class RolloutSource(Source, Protocol):
    """A complete rollout."""

    @property
    def columns(self) -> dict[str, Tensor]:
        """(seeds, environments, steps, ...) by name, on the engine's device."""

    @property
    def layout(self) -> RolloutLayout:
        """What the columns are."""

    @property
    def size(self) -> int:
        """The number of rows of each seed."""


class Minibatches:
    """Trains on the rows of a rollout in minibatches of `batch_size` rows."""

    def __init__(self, training: Training, rollout: RolloutSource, batch_size: int, targets: ComputeTargets) -> None:
        self.training, self.engine, self.rollout, self.targets = training, training.engine, rollout, targets
        self.batch_size, self.count = batch_size, rollout.size // batch_size  # the rest of an epoch's rows is left out
        seeds, device = len(self.engine.seeds), self.engine.device
        self._order = torch.zeros(seeds, self.count, batch_size, dtype=torch.int64, device=device)
        self._first = torch.zeros((), dtype=torch.int64, device=device)  # the first update of this epoch
        self._programs: dict[str, Callable[[], None]] = {}

    def compute_targets(self) -> None:
        """Compute the derived columns of the rollout with the present networks."""
        self._run("targets", self._compute, [self.rollout.columns[name] for name in self.rollout.layout.derived])

    def train_epoch(self, specs: Mapping[str, NoiseSpec]) -> None:
        """Use each row once, in an order that depends on the seed and the update."""
        engine = self.engine
        if engine.device.type != "cuda":
            self.training.train_on(self.rollout, self._host_order(), specs)
            return
        self._first.copy_(engine.count_tensor)
        self._run("shuffle", self._shuffle, [self._order])
        self.training.replay_on(self.rollout, self._rows, (self.count, self.batch_size), specs)

    # --- the order of rows -----------------------------------------------------------------------------------------
    def _host_order(self) -> Tensor:
        """(minibatches, seeds, batch) row numbers of one epoch."""
        used, update = self.count * self.batch_size, self.engine.update_count
        orders = [stream(seed, STREAM, update).permutation(self.rollout.size)[:used] for seed in self.engine.seeds]
        shape = (len(orders), self.count, self.batch_size)
        return torch.from_numpy(np.stack(orders).reshape(shape)).transpose(0, 1)

    def _shuffle(self) -> None:
        """Draw the order of an epoch: the rows sorted by random numbers."""
        engine = self.engine
        keys = device_rng.uniforms(engine.seed_tensor, STREAM_IDS[STREAM], engine.count_tensor, self.rollout.size)
        order = keys.argsort(dim=-1, stable=True)[:, : self.count * self.batch_size]
        self._order.copy_(order.view_as(self._order))

    def _rows(self, updates: Tensor) -> Tensor:
        # Within the epoch also when a warm-up runs its updates twice.
        return self._order.index_select(1, (updates - self._first) % self.count).transpose(0, 1)

    # --- targets ---------------------------------------------------------------------------------------------------
    def _compute(self) -> None:
        engine, binding = self.engine, self.engine.binding

        def one_seed(groups: Groups, columns: Batch) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
            found = self.targets(binding.networks_of(groups), binding.batch_for(groups, columns))
            return dict(found.columns), dict(found.running)

        if engine.stacked:
            columns, running = vmap(one_seed)(engine.groups(), self.rollout.columns)
        else:
            every = enumerate(engine.groups_by_seed())
            columns, running = stacked([one_seed(groups, entry(self.rollout.columns, i)) for i, groups in every])
        for name, value in columns.items():
            self.rollout.columns[name].copy_(value)
        engine.set_running(running)

    def _run(self, name: str, work: Callable[[], None], changed: list[Tensor]) -> None:
        """Run `work`, compiled if the engine compiles and captured on CUDA; `changed`: tensors besides the engine's."""
        engine = self.engine
        with torch.no_grad(), engine.denormals_flushed():
            if name not in self._programs:
                program = engine.compile(lambda: work()) if engine.compiled else work  # a method cannot be compiled
                on_gpu = engine.device.type == "cuda"
                self._programs[name] = self.training.captured(program, changed) if on_gpu else program
            self._programs[name]()
