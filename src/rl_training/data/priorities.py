"""Prioritised replay: Schaul et al., "Prioritized Experience Replay", 2016, with a sum tree for every seed.

Priorities are whole numbers (fixed point): their sums are exact in any order, so a tree brought up to date branch by
branch has the same bits as one built anew, compiled or not, alone or among other seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor

FAN = 32  # children of a node: a million rows are four levels deep
SCALE = 2**20  # one, in fixed point
LARGEST = (
    2**32
)  # a priority is cut off here: two million rows of it still sum up to a number that float64 holds exactly
SMALLEST_ERROR = 1e-6  # no row is forgotten for good


class Priorities:
    """The priority of each row of a ring, for each seed; rows without a transition have none."""

    def __init__(self, rows: int, seeds: int, *, alpha: float, device: torch.device | str = "cpu") -> None:
        self.rows, self.seeds, self.alpha, self.device = rows, seeds, alpha, torch.device(device)
        self.levels: list[Tensor] = []
        width = rows
        while not self.levels or width > 1:
            width = -(-width // FAN)
            # Flat, each seed's nodes behind the one's before: a compiled update writes into a view by copying it all.
            self.levels.append(torch.zeros(seeds * width * FAN, dtype=torch.int64, device=self.device))
        self.highest = torch.full((seeds, 1), SCALE, dtype=torch.int64, device=self.device)
        self.beta = torch.zeros((), dtype=torch.float64, device=self.device)
        self._beta = 0.0
        self._arrays = [level.view(seeds, -1).numpy() for level in self.levels] if self.device.type == "cpu" else []

    @property
    def leaves(self) -> Tensor:
        """(seeds, rows) as a view."""
        return self.levels[0].view(self.seeds, -1)[:, : self.rows]

    def set_beta(self, beta: float) -> None:
        if beta != self._beta:
            self._beta = beta
            self.beta.fill_(beta)

    def draw(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Stratified: the batch divides the sum of the priorities evenly, and each part gives one row."""
        batch = uniforms.shape[-1]
        total = self.levels[-1].view(self.seeds, FAN).sum(-1, keepdim=True)
        share = (torch.arange(batch, device=self.device) + uniforms) / batch
        point = torch.minimum((share * total).long(), total - 1)
        node = torch.zeros_like(point)
        for level in reversed(self.levels):
            children = self._children(level, node)
            sums = children.cumsum(-1)
            chosen = (sums <= point.unsqueeze(-1)).sum(-1)
            point = point - (sums - children).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
            node = node * FAN + chosen
        # What every weight has in common (how many rows, their sum) cancels against the largest weight of the batch.
        priority = self.leaves.gather(1, node).double()
        ratio = priority.amin(-1, keepdim=True) / priority
        return node, (ratio.log() * self.beta).exp().float()

    def learn(self, rows: Tensor, errors: Tensor) -> None:
        size = (errors.double().abs() + SMALLEST_ERROR).log() * self.alpha
        priority = (size.exp() * SCALE).clamp(1, LARGEST).nan_to_num(SCALE).long()
        self.highest.copy_(torch.maximum(self.highest, priority.amax(-1, keepdim=True)))
        # A row drawn twice gets the larger of its two errors: which one came last would be up to the device.
        same = rows.unsqueeze(-1) == rows.unsqueeze(-2)
        priority = torch.where(same, priority.unsqueeze(-2), 0).amax(-1)
        self.levels[0][self._places(self.levels[0], rows)] = priority
        self._refresh(rows)

    def put(self, start: int, count: int) -> None:
        """Rows `start` onwards hold new transitions: as likely as the most likely one so far."""
        self._assign(start, count, self.highest)

    def forget(self, start: int, count: int) -> None:
        """Rows `start` onwards must not be drawn any more."""
        self._assign(start, count, torch.zeros_like(self.highest))

    def _assign(self, start: int, count: int, value: Tensor) -> None:
        if not self._arrays:
            self.leaves[:, start : start + count] = value
            self._refresh(torch.arange(start, start + count, device=self.device).expand(self.seeds, -1))
            return
        new = value.numpy()[:, 0]
        for row in range(start, start + count):  # differences up the tree: at every step of the run, so without torch
            change = new - self._arrays[0][:, row]
            for array in self._arrays:
                array[:, row] += change
                row //= FAN

    def _refresh(self, rows: Tensor) -> None:
        """Sums above the given rows. Rows that share a node write the same sum."""
        for lower, upper in pairwise(self.levels):
            rows = rows // FAN
            upper[self._places(upper, rows)] = self._children(lower, rows).sum(-1)

    def _children(self, level: Tensor, nodes: Tensor) -> Tensor:
        """(seeds, batch) nodes of each seed's own tree to (seeds, batch, FAN)."""
        first = self._places(level, nodes * FAN).unsqueeze(-1)
        return level[first + torch.arange(FAN, device=self.device)]

    def _places(self, level: Tensor, numbers: Tensor) -> Tensor:
        return numbers + torch.arange(self.seeds, device=self.device).unsqueeze(-1) * (len(level) // self.seeds)

    # --- state -----------------------------------------------------------------------------------------------------
    def tensors(self) -> list[Tensor]:
        return [*self.levels, self.highest]

    def state(self, rows: Tensor) -> dict[str, Tensor]:
        """The priorities of `rows`, in that order."""
        return {"priorities": self.leaves.index_select(1, rows.to(self.device)).cpu(), "highest": self.highest.cpu()}

    def load(self, rows: Tensor, state: Mapping[str, Tensor]) -> None:
        for level in self.levels:
            level.zero_()
        self.leaves.index_copy_(1, rows.to(self.device), state["priorities"].to(self.device))
        self.highest.copy_(state["highest"])
        for lower, upper in pairwise(self.levels):
            sums = lower.view(self.seeds, -1, FAN).sum(-1)
            upper.view(self.seeds, -1)[:, : sums.shape[1]] = sums


def priority_bytes(rows: int, seeds: int) -> int:
    return int(rows * seeds * 8 * FAN / (FAN - 1))
