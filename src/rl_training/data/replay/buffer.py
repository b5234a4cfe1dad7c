"""The replay buffer of all seeds: preallocated, written in place, sampled by row numbers.

Terminated and truncated are stored separately; `dones` is computed when sampling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.core.specs import EnvSpec
from rl_training.data.replay.priorities import Priorities
from rl_training.tensors.outbox import Compartment, Outbox

Array = NDArray[Any]
RowLayout = dict[str, tuple[tuple[int, ...], str]]
FIELDS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")


def field_layout(spec: EnvSpec) -> RowLayout:
    """Shape and dtype of one row of each field."""
    specs = {"obs": spec.observation, "actions": spec.action, "next_obs": spec.observation}
    flags: RowLayout = {"rewards": ((), "float32"), "terminated": ((), "bool"), "truncated": ((), "bool")}
    return {**flags, **{name: (one.shape, one.dtype) for name, one in specs.items()}}


def whole_steps(rows: int, num_envs: int) -> int:
    """`rows` rounded down to whole vector steps, at least one."""
    return max(rows // num_envs, 1) * num_envs


def row_bytes(layout: RowLayout) -> int:
    """The bytes of one row of all fields."""
    return sum(int(np.prod(s, dtype=np.int64)) * np.dtype(dtype).itemsize for s, dtype in layout.values())


def replay_bytes(spec: EnvSpec, seeds: int, capacity: int) -> int:
    """The bytes of a replay of vectors."""
    return row_bytes(field_layout(spec)) * seeds * capacity


def host_array(value: Tensor | Array) -> Array:
    """An array in host memory, without a copy where it is on the host already."""
    return value.cpu().numpy() if isinstance(value, Tensor) else value


class ReplayBuffer:
    """A ring of `capacity` transitions for each seed; all seeds share its head, since they run in lockstep."""

    def __init__(
        self,
        spec: EnvSpec,
        *,
        capacity: int,
        num_envs: int,
        seeds: int,
        device: torch.device | str = "cpu",
        n_step: int = 1,
        gamma: float = 1.0,
        priority_alpha: float | None = None,
    ) -> None:
        self.n_step, self.gamma = n_step, gamma
        # Whole vector steps only, so that none is split at the end of the ring.
        self.capacity = whole_steps(capacity, num_envs)
        self.num_envs, self.seeds, self.device = num_envs, seeds, torch.device(device)
        self.added = 0  # transitions ever added, per seed
        self.size_tensor = torch.zeros((), dtype=torch.int64, device=self.device)
        self.added_tensor = torch.zeros((), dtype=torch.int64, device=self.device)
        self.storage: dict[str, Tensor] = {}
        for name, (row, dtype) in self.layout(spec).items():
            self.storage[name] = self._zeros((seeds, self.capacity, *row), getattr(torch, dtype))
        self.priorities: Priorities | None = None
        if priority_alpha is not None:
            self.priorities = Priorities(self.capacity, seeds, alpha=priority_alpha, device=self.device)
        self._arrays = {k: v.numpy() for k, v in self.storage.items()} if self.device.type == "cpu" else {}
        self._rows = {k: v.view(seeds * self.capacity, *v.shape[2:]) for k, v in self.storage.items()}
        self._offsets = (torch.arange(seeds, device=self.device) * self.capacity).unsqueeze(-1)
        self._compartment: Compartment | None = None
        self._step_rows = torch.arange(num_envs, device=self.device)
        self._unstored = False  # whether the newest vector step is on its way: counted, and not stored yet

    @staticmethod
    def layout(spec: EnvSpec) -> RowLayout:
        """Shape and dtype of one row of each stored field."""
        return field_layout(spec)

    def _zeros(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Zeros, written now so that every memory page is allocated."""
        return torch.empty(shape, dtype=dtype, device=self.device).zero_()

    @property
    def size(self) -> int:
        return min(self.added, self.capacity)

    @property
    def relabelled(self) -> Callable[[Tensor, Sequence[int], int], dict[str, Tensor]] | None:
        """None: batches are as they were stored."""
        return None

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.storage.values())

    @property
    def head(self) -> int:
        return self.added % self.capacity

    def add(self, **fields: Tensor | Array) -> None:
        """Add one vector step: each field (seeds, num_envs, ...), on any device."""
        self.flush()
        if self._compartment is not None:
            self.added += self.num_envs
            self._compartment.put(added=self.added, **{name: host_array(value) for name, value in fields.items()})
            self._unstored = True
            return
        rows = slice(self.head, self.head + self.num_envs)
        for name, value in fields.items():
            if self._arrays:
                self._arrays[name][:, rows] = host_array(value)
            else:
                self.storage[name][:, rows].copy_(torch.as_tensor(value), non_blocking=True)
        if self.priorities is not None:
            self.priorities.add(self.head, self.num_envs)
        self.added += self.num_envs
        self.size_tensor.fill_(self.size)
        self.added_tensor.fill_(self.added)

    # --- vector steps that are sent to a GPU and stored there ------------------------------------------------------
    def send_by(self, outbox: Outbox) -> None:
        """Send vector steps from the host by `outbox`; the next update, `flush` or `add` then stores the newest one."""
        layout = {
            name: ((self.seeds, self.num_envs, *one.shape[2:]), one.dtype) for name, one in self.storage.items()
        }
        assert self._compartment is None, "steps are sent by an outbox already"
        self._compartment = outbox.reserve({**layout, "added": ((), torch.int64)})

    @property
    def pending(self) -> ReplayBuffer:
        """Where an update finds a vector step to be stored first."""
        return self

    def take_unstored(self) -> bool:
        """Send the newest vector step, unless it is stored already; if True, the caller runs `store_sent`."""
        taken, self._unstored = self._unstored, False
        if taken:
            assert self._compartment is not None
            self._compartment.outbox.send()  # does nothing where the inputs of acting have taken it along
        return taken

    def store_sent(self) -> None:
        """Store the vector step that was sent last: work of the device alone, which a CUDA graph can hold."""
        assert self._compartment is not None
        sent = self._compartment.tensors
        rows = (sent["added"] - self.num_envs + self._step_rows) % self.capacity
        for name, tensor in self.storage.items():
            tensor.index_copy_(1, rows, sent[name])
        if self.priorities is not None:
            self.priorities.add_rows(rows)
        self.added_tensor.copy_(sent["added"])
        self.size_tensor.copy_(sent["added"].clamp(max=self.capacity))

    def flush(self) -> None:
        """Store the newest vector step now."""
        if self.take_unstored():
            self.store_sent()

    def gather(self, indices: Tensor) -> dict[str, Tensor]:
        """The batch of row numbers (..., seeds, batch), with those leading axes."""
        if self.n_step > 1:
            return self._gather_n_step(indices)
        batch = {name: self._take(name, indices) for name in ("actions", "rewards")}
        batch["obs"], batch["next_obs"] = self._observations(indices, indices)
        batch["dones"] = self._take("terminated", indices).float()
        return batch

    def _observations(self, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """`obs` of the rows `first` and `next_obs` of the rows `last`."""
        return self._take("obs", first), self._take("next_obs", last)

    def _gather_n_step(self, indices: Tensor) -> dict[str, Tensor]:
        """Rewards summed over up to `n_step` steps of one environment, stopping at an episode's end or the newest row.

        `next_obs` and `dones` are those of the last step taken: after a time limit the value is still bootstrapped.
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
        obs, next_obs = self._observations(indices, last)
        return {
            "obs": obs,
            "actions": self._take("actions", indices),
            "rewards": rewards,
            "next_obs": next_obs,
            "dones": self._take("terminated", last).float(),
            "discounts": discounts,
        }

    def _take(self, name: str, indices: Tensor) -> Tensor:
        rows = self._rows[name].index_select(0, (indices + self._offsets).reshape(-1))
        return rows.view(*indices.shape, *rows.shape[1:])

    # --- state: rows in the order they were added ------------------------------------------------------------------
    def oldest(self) -> int:
        """The number of the oldest stored transition."""
        return self.added - self.size

    def read(self, start: int, stop: int) -> dict[str, Tensor]:
        """Transitions number `start` to `stop` of every seed, on the host; to be used before the next `add`."""
        self.flush()
        first, count = start % self.capacity, stop - start
        if self._arrays and first + count <= self.capacity:
            return {name: tensor.narrow(1, first, count) for name, tensor in self.storage.items()}
        rows = self.places(start, stop)
        return {name: tensor.index_select(1, rows).cpu() for name, tensor in self.storage.items()}

    def places(self, start: int, stop: int) -> Tensor:
        """The rows of transitions number `start` to `stop`."""
        return torch.arange(start, stop, device=self.device) % self.capacity

    def segment_layout(self, count: int, rows: Mapping[str, Tensor]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and dtype of every tensor that `read` gives for `count` transitions, of which `rows` is an example."""
        return {name: ((self.seeds, count, *one.shape[2:]), one.dtype) for name, one in self.storage.items()}

    def write(self, start: int, rows: Mapping[str, Tensor], skip: int = 0) -> None:
        """Write the result of `read` except its first `skip` transitions; `finish_writing` then sets the count."""
        stop = start + rows["rewards"].shape[1]
        while start + skip < stop:  # up to the end of the ring, then from its beginning: plain copies
            first = (start + skip) % self.capacity
            length = min(stop - start - skip, self.capacity - first)
            for name, tensor in self.storage.items():
                tensor.narrow(1, first, length).copy_(rows[name].narrow(1, skip, length))
            skip += length

    def finish_writing(self, added: int) -> None:
        """Set the number of transitions ever added, after `write`."""
        self.added, self._unstored = added, False
        self.size_tensor.fill_(self.size)
        self.added_tensor.fill_(self.added)

    def cut_off(self, envs: Sequence[int]) -> list[tuple[int, int, int]]:
        """Truncate the open episodes of these environments (counted over all seeds), which are not continued.

        Otherwise n-step returns and stacks of frames would extend into another episode. Returns (seed, environment,
        row) of the transitions that are now the last of their episode.
        """
        self.flush()
        last = []
        for seed, env in (divmod(one, self.num_envs) for one in envs if self.added):
            row = (self.added - self.num_envs + env) % self.capacity
            if not (self.storage["terminated"][seed, row] or self.storage["truncated"][seed, row]):
                self.storage["truncated"][seed, row] = True
                last.append((seed, env, row))
        return last
