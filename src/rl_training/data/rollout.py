"""The rollout of all seeds: the newest steps of every environment, learned from a few times and then forgotten.

Every column is (seeds, environments, steps, ...), so that consecutive steps of an environment are consecutive rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rl_training.core.specs import EnvSpec
from rl_training.data.replay.buffer import RowLayout, field_layout, host_array, row_bytes

STATE = "state."  # the prefix of a recurrent policy's state, stored at the first step of each sequence
STARTS = "starts"  # whether a step is the first of its episode


@dataclass(frozen=True)
class RolloutLayout:
    """The columns of a rollout besides those of transitions."""

    stored: tuple[str, ...] = ()  # numbers that the policy returns with each action
    derived: tuple[str, ...] = ()  # numbers that are computed once the rollout is complete
    state: Mapping[str, Tensor] = field(default_factory=dict)  # a recurrent policy's at an episode's start, (rows, ...)
    sequence: int = 1  # consecutive steps of one row of a batch; 1: rows are single steps

    def collected(self, spec: EnvSpec) -> RowLayout:
        """Shape and dtype of one step of each column that is written step by step."""
        rows: RowLayout = {**field_layout(spec), **{name: ((), "float32") for name in self.stored}}
        return {**rows, STARTS: ((), "bool")} if self.state else rows

    @property
    def batch_names(self) -> tuple[str, ...]:
        """The columns of a batch."""
        recurrent = (STARTS, *(STATE + name for name in self.state)) if self.state else ()
        return ("obs", "actions", *self.stored, *self.derived, *recurrent)


def rollout_bytes(spec: EnvSpec, rows: int) -> int:
    """About the bytes of a rollout, without the states of a recurrent policy."""
    return row_bytes(field_layout(spec)) * rows


class Rollout:
    """The steps collected since the last training, in the memory of the environments and of the learner."""

    priorities = None
    relabelled = None
    pending = None

    def __init__(
        self,
        spec: EnvSpec,
        layout: RolloutLayout,
        *,
        seeds: int,
        num_envs: int,
        steps: int,
        device: torch.device,
        host: bool,
    ) -> None:
        """`host`: steps are written in host memory, and copied to `device` when the rollout is complete."""
        self.spec, self.layout, self.seeds, self.num_envs, self.steps = spec, layout, seeds, num_envs, steps
        self.device, self.host = device, host and device.type != "cpu"
        self.filled = 0  # steps of every environment that are stored
        self.columns = self._columns(device)
        # Recorded when the steps have been copied, from pinned memory; None: a copy is complete when it returns.
        self._copied = torch.cuda.Event() if self.host and device.type == "cuda" else None
        pinned = self._copied is not None
        written = self._columns(torch.device("cpu"), pinned) if self.host else self.columns
        self.written = {name: written[name] for name in layout.collected(spec)}
        self.states = {name: written[STATE + name] for name in layout.state}
        rows = (seeds, num_envs)
        self.open_state = {n: one.expand(*rows, *one.shape[1:]).to(device).clone() for n, one in layout.state.items()}
        self.initial = {name: one.to(device) for name, one in layout.state.items()}  # (1, ...) of one row
        self.open_starts = torch.ones(rows, dtype=torch.bool, device=device)
        self._arrays = {n: t.numpy() for n, t in self.written.items() if t.device.type == "cpu"}
        self._rows = {name: self._as_rows(name) for name in layout.batch_names}
        self._offsets = (torch.arange(seeds, device=device) * self.size).unsqueeze(-1)
        self.size_tensor = torch.tensor(self.size, device=device)

    def _columns(self, device: torch.device, pinned: bool = False) -> dict[str, Tensor]:
        """All columns; from pinned memory copies are several times as fast, and the host does not wait for them."""
        rows, layout = (self.seeds, self.num_envs), self.layout
        shapes: RowLayout = {**layout.collected(self.spec), **{name: ((), "float32") for name in layout.derived}}
        made = {
            name: torch.zeros(*rows, self.steps, *shape, dtype=getattr(torch, dtype), device=device, pin_memory=pinned)
            for name, (shape, dtype) in shapes.items()
        }
        for name, one in layout.state.items():
            length = self.steps // layout.sequence
            shape = (*rows, length, *one.shape[1:])
            made[STATE + name] = torch.zeros(shape, dtype=one.dtype, device=device, pin_memory=pinned)
        return made

    @property
    def nbytes(self) -> int:
        """The bytes of all steps as a checkpoint has them."""
        return sum(tensor.nbytes for tensor in (*self.written.values(), *self.states.values()))

    # --- writing ---------------------------------------------------------------------------------------------------
    @property
    def full(self) -> bool:
        return self.filled == self.steps

    def add(self, state: Mapping[str, Tensor], **fields: Tensor) -> None:
        """Store one step of every environment, each field (seeds, num_envs, ...); `state` is that after the step."""
        if self.layout.state:
            fields[STARTS] = self.open_starts
        for name, value in fields.items():
            if name in self._arrays:
                self._arrays[name][:, :, self.filled] = host_array(value)
            else:
                self.written[name][:, :, self.filled].copy_(value)
        if self.layout.state:
            if self.filled % self.layout.sequence == 0:
                for name, column in self.states.items():
                    column[:, :, self.filled // self.layout.sequence].copy_(self.open_state[name])
            self._carry(fields["terminated"] | fields["truncated"], state)
        self.filled += 1

    def write_at(self, step: Tensor, state: Mapping[str, Tensor], **fields: Tensor) -> None:
        """The same for a step whose number is a tensor of one element, without counting it: for captured programs."""
        if self.layout.state:
            fields[STARTS] = self.open_starts
        for name, value in fields.items():
            self.written[name].index_copy_(2, step, value.unsqueeze(2))
        if self.layout.state:
            for name, column in self.states.items():
                column.index_copy_(2, step // self.layout.sequence, self._first_state(name, column, step))
            self._carry(fields["terminated"] | fields["truncated"], state)

    def _first_state(self, name: str, column: Tensor, step: Tensor) -> Tensor:
        """The open state at the first step of a sequence, else what is stored there already."""
        stored = column.index_select(2, step // self.layout.sequence)
        return torch.where(step % self.layout.sequence == 0, self.open_state[name].unsqueeze(2), stored)

    def _carry(self, ended: Tensor, state: Mapping[str, Tensor]) -> None:
        """Keep the state for the next step; where an episode ended, the next one starts from the initial state."""
        for name, value in state.items():
            fresh = ended.view(*ended.shape, *[1] * (value.dim() - 2))
            self.open_state[name].copy_(torch.where(fresh.to(value.device), self.initial[name], value))
        self.open_starts.copy_(ended)

    def complete(self) -> None:
        """Copy the steps to the learner's device, if they are elsewhere."""
        if self.host:
            for name, tensor in {**self.written, **{STATE + n: t for n, t in self.states.items()}}.items():
                self.columns[name].copy_(tensor, non_blocking=True)
            if self._copied is not None:
                self._copied.record()

    def forget(self) -> None:
        """Begin the next rollout."""
        if self._copied is not None:
            self._copied.synchronize()  # the next steps are written into the memory that is being copied
        self.filled = 0

    # --- batches ---------------------------------------------------------------------------------------------------
    @property
    def size(self) -> int:
        """Rows of one seed: steps, or sequences of steps."""
        return self.num_envs * (self.steps // self.layout.sequence)

    def _as_rows(self, name: str) -> Tensor:
        column = self.columns[name]
        if self.layout.state and not name.startswith(STATE):  # sequences, also where they have one step
            return column.view(self.seeds * self.size, self.layout.sequence, *column.shape[3:])
        return column.view(self.seeds * self.size, *column.shape[3:])

    def gather(self, indices: Tensor) -> dict[str, Tensor]:
        """The batch of row numbers (..., seeds, batch), with those leading axes."""
        places = (indices + self._offsets).reshape(-1)
        found = {name: rows.index_select(0, places) for name, rows in self._rows.items()}
        return {name: rows.view(*indices.shape, *rows.shape[1:]) for name, rows in found.items()}

    # --- state -----------------------------------------------------------------------------------------------------
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that the rest of the run depends on, on the host, by name."""
        filled, found = self.filled, dict[str, Tensor]()
        if filled:
            found = {name: tensor[:, :, :filled].cpu() for name, tensor in self.written.items()}
            sequences = -(-filled // self.layout.sequence)
            found |= {STATE + name: tensor[:, :, :sequences].cpu() for name, tensor in self.states.items()}
        if self.layout.state:
            found |= {f"open.{name}": tensor.cpu() for name, tensor in self.open_state.items()}
            found["open_starts"] = self.open_starts.cpu()
        return {name: tensor.contiguous() for name, tensor in found.items()}

    def layout_of(self, filled: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        """Shape and dtype of every tensor that `tensors` gives after so many steps."""
        lengths = {name: filled for name in self.written}
        lengths |= {STATE + name: -(-filled // self.layout.sequence) for name in self.states}
        columns = {name: self.columns[name] for name in lengths if filled}
        found = {n: ((*one.shape[:2], lengths[n], *one.shape[3:]), one.dtype) for n, one in columns.items()}
        found |= {f"open.{name}": (tuple(one.shape), one.dtype) for name, one in self.open_state.items()}
        starts = (tuple(self.open_starts.shape), self.open_starts.dtype)
        return {**found, "open_starts": starts} if self.layout.state else found

    def load(self, filled: int, tensors: Mapping[str, Tensor]) -> None:
        """Put saved tensors back."""
        self.filled = filled
        for name, tensor in {**self.written, **{STATE + n: t for n, t in self.states.items()}}.items():
            if filled:
                tensor[:, :, : tensors[name].shape[2]].copy_(tensors[name])
        for name, tensor in self.open_state.items():
            tensor.copy_(tensors[f"open.{name}"])
        if self.layout.state:
            self.open_starts.copy_(tensors["open_starts"])

    def lose(self, rows: Sequence[int]) -> None:
        """Truncate the open episodes of these environments (counted over all seeds), which are not continued."""
        for seed, env in (divmod(row, self.num_envs) for row in rows):
            self.open_starts[seed, env] = True
            for name, initial in self.initial.items():
                self.open_state[name][seed, env] = initial[0]
            if self.filled and not self.written["terminated"][seed, env, self.filled - 1]:
                self.written["truncated"][seed, env, self.filled - 1] = True

