"""Replay for many seeds at once: preallocated, written in place, sampled by row numbers.

It stores what happened (terminated and truncated apart); what counts as `dones` is decided when sampling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.core.types import EnvShape

Array = NDArray[Any]
FIELDS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")


def field_layout(shape: EnvShape) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of one row of each field."""
    action: tuple[tuple[int, ...], str] = ((), "int64") if shape.discrete else ((shape.action_dim,), "float32")
    return {
        "obs": (shape.obs_shape, shape.obs_dtype),
        "actions": action,
        "rewards": ((), "float32"),
        "next_obs": (shape.obs_shape, shape.obs_dtype),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }


def replay_bytes(shape: EnvShape, seeds: int, capacity: int) -> int:
    row = sum(int(np.prod(s, dtype=np.int64)) * np.dtype(dtype).itemsize for s, dtype in field_layout(shape).values())
    return row * seeds * capacity


class ReplayBuffer:
    """A ring of `capacity` transitions for each seed; all seeds share its head, since they run in lockstep."""

    def __init__(
        self,
        shape: EnvShape,
        *,
        capacity: int,
        num_envs: int,
        seeds: int,
        device: torch.device | str = "cpu",
        n_step: int = 1,
        gamma: float = 1.0,
    ) -> None:
        self.n_step, self.gamma = n_step, gamma
        # Whole vector steps only, so that a wrap never tears one apart.
        self.capacity = max(capacity // num_envs, 1) * num_envs
        self.num_envs, self.seeds, self.device = num_envs, seeds, torch.device(device)
        self.added = 0  # transitions ever added, per seed
        self.size_tensor = torch.zeros((), dtype=torch.int64, device=self.device)
        self.added_tensor = torch.zeros((), dtype=torch.int64, device=self.device)
        self.storage: dict[str, Tensor] = {}
        for name, (row, dtype) in field_layout(shape).items():
            empty = torch.empty((seeds, self.capacity, *row), dtype=getattr(torch, dtype), device=self.device)
            self.storage[name] = empty.zero_()  # touches every page now: no surprise later in the run
        self._arrays = {k: v.numpy() for k, v in self.storage.items()} if self.device.type == "cpu" else {}
        self._rows = {k: v.view(seeds * self.capacity, *v.shape[2:]) for k, v in self.storage.items()}
        self._offsets = (torch.arange(seeds, device=self.device) * self.capacity).unsqueeze(-1)

    @property
    def size(self) -> int:
        return min(self.added, self.capacity)

    @property
    def head(self) -> int:
        return self.added % self.capacity

    def add(self, **fields: Array) -> None:
        """One vector step: each field (seeds, num_envs, ...)."""
        rows = slice(self.head, self.head + self.num_envs)
        for name, value in fields.items():
            if self._arrays:
                self._arrays[name][:, rows] = value
            else:
                self.storage[name][:, rows] = torch.from_numpy(value).to(self.device, non_blocking=True)
        self.added += self.num_envs
        self.size_tensor.fill_(self.size)
        self.added_tensor.fill_(self.added)

    def gather(self, indices: Tensor) -> dict[str, Tensor]:
        """Row numbers (..., seeds, batch) to a batch with those leading axes."""
        if self.n_step > 1:
            return self._gather_n_step(indices)
        batch = {name: self._take(name, indices) for name in ("obs", "actions", "rewards", "next_obs")}
        batch["dones"] = self._take("terminated", indices).float()
        return batch

    def _gather_n_step(self, indices: Tensor) -> dict[str, Tensor]:
        """Rewards summed over up to `n_step` steps of one environment, stopping at an episode's end or the newest row.

        `next_obs` and `dones` are those of the last step taken: behind a time limit the value is still bootstrapped.
        """
        ahead = (self.added_tensor - 1 - indices) % self.capacity  # rows added after each of these
        rewards = torch.zeros(indices.shape, device=self.device)
        discounts = torch.ones(indices.shape, device=self.device)
        last, alive = indices, torch.ones_like(indices, dtype=torch.bool)
        for step in range(self.n_step):
            rows = (indices + step * self.num_envs) % self.capacity
            alive = alive & (ahead >= step * self.num_envs)
            rewards = rewards + torch.where(alive, discounts * self._take("rewards", rows), 0.0)
            discounts = torch.where(alive, discounts * self.gamma, discounts)
            last = torch.where(alive, rows, last)
            alive = alive & ~(self._take("terminated", rows) | self._take("truncated", rows))
        return {
            "obs": self._take("obs", indices),
            "actions": self._take("actions", indices),
            "rewards": rewards,
            "next_obs": self._take("next_obs", last),
            "dones": self._take("terminated", last).float(),
            "discounts": discounts,
        }

    def _take(self, name: str, indices: Tensor) -> Tensor:
        rows = self._rows[name].index_select(0, (indices + self._offsets).reshape(-1))
        return rows.view(*indices.shape, *rows.shape[1:])

    # --- state: rows in the order they were added ------------------------------------------------------------------
    def oldest(self) -> int:
        """The number of the oldest transition still held."""
        return self.added - self.size

    def read(self, start: int, stop: int) -> dict[str, Tensor]:
        """Transitions number `start` to `stop` of every seed, on the host; to be used before the next `add`."""
        first, count = start % self.capacity, stop - start
        if self._arrays and first + count <= self.capacity:
            return {name: tensor.narrow(1, first, count) for name, tensor in self.storage.items()}
        rows = torch.arange(start, stop, device=self.device) % self.capacity
        return {name: tensor.index_select(1, rows).cpu() for name, tensor in self.storage.items()}

    def write(self, start: int, rows: dict[str, Tensor]) -> None:
        """Put transitions number `start` onwards back where they were; `finish_writing` then tells the count."""
        count = rows["rewards"].shape[1]
        places = torch.arange(start, start + count, device=self.device) % self.capacity
        for name, tensor in self.storage.items():
            tensor.index_copy_(1, places, rows[name].to(self.device))

    def finish_writing(self, added: int) -> None:
        self.added = added
        self.size_tensor.fill_(self.size)
        self.added_tensor.fill_(self.added)
