"""Prioritised replay: Schaul et al., "Prioritized Experience Replay", 2016, with a sum tree for every seed.

Priorities are whole numbers (fixed point): their sums are exact in any order, so a tree updated branch by branch has
the same bits as a rebuilt one, compiled or not, alone or among other seeds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

SCALE = 2**20  # one, in fixed point
# The sum over two million rows of it is still exact in float64.
MAX_PRIORITY = 2**32
MIN_ERROR = 1e-6  # so that every row can be drawn again


class Priorities:
    """The priority of each row of a ring, for each seed; zero for rows without a transition."""

    def __init__(self, rows: int, seeds: int, *, alpha: float, device: torch.device | str = "cpu") -> None:
        self.rows, self.seeds, self.alpha, self.device = rows, seeds, alpha, torch.device(device)
        self.depth = (rows - 1).bit_length()
        self.first_leaf = 1 << self.depth
        # A binary tree for each seed, one after the other: node n is the sum of nodes 2n and 2n + 1, the root is 1.
        # Flat, since a compiled update writes into a view of a tensor by copying all of it.
        self.tree = torch.zeros(seeds * 2 * self.first_leaf, dtype=torch.int64, device=self.device)
        self.highest = torch.full((seeds, 1), SCALE, dtype=torch.int64, device=self.device)
        self.beta = torch.zeros((), dtype=torch.float64, device=self.device)
        self._beta = 0.0
        self._array = self.tree.view(seeds, -1).numpy() if self.device.type == "cpu" else None
        self._up = np.arange(self.depth + 1)

    @property
    def leaves(self) -> Tensor:
        """(seeds, rows) as a view."""
        return self.tree.view(self.seeds, -1)[:, self.first_leaf : self.first_leaf + self.rows]

    def set_beta(self, beta: float) -> None:
        """Set the exponent of the importance weights."""
        if beta != self._beta:
            self._beta = beta
            self.beta.fill_(beta)

    def draw(self, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Rows and importance weights by stratified sampling: one row from each equal part of the sum of priorities."""
        batch = uniforms.shape[-1]
        total = self._sums(torch.ones_like(uniforms[:, :1], dtype=torch.int64))
        share = (torch.arange(batch, device=self.device) + uniforms) / batch
        point = torch.minimum((share * total).long(), total - 1)
        node = torch.ones_like(point)
        for _ in range(self.depth):  # descend to the left or the right child
            left = self._sums(2 * node)
            right = point >= left
            point = point - torch.where(right, left, 0)
            node = 2 * node + right
        # The common factors of all weights (number of rows, sum) cancel against the largest weight of the batch.
        priority = self._sums(node).double()
        ratio = priority.amin(-1, keepdim=True) / priority
        return node - self.first_leaf, (ratio.log() * self.beta).exp().float()

    def update(self, rows: Tensor, errors: Tensor) -> None:
        """Set the priorities of `rows` from their errors."""
        size = (errors.double().abs() + MIN_ERROR).log() * self.alpha
        priority = (size.exp() * SCALE).clamp(1, MAX_PRIORITY).nan_to_num(SCALE).long()
        self.highest.copy_(torch.maximum(self.highest, priority.amax(-1, keepdim=True)))
        # A row drawn twice gets the larger of its errors: which one is written last would depend on the device.
        same = rows.unsqueeze(-1) == rows.unsqueeze(-2)
        priority = torch.where(same, priority.unsqueeze(-2), 0).amax(-1)
        node = rows + self.first_leaf
        self.tree[self._places(node)] = priority
        self._refresh(node)

    def add(self, start: int, count: int) -> None:
        """Give `count` new transitions from row `start` on the highest priority so far."""
        if self._array is None:
            self.add_rows(torch.arange(start, start + count, device=self.device))
            return
        highest = self.highest.numpy()
        for row in range(start, start + count):  # without torch, since this runs at every step
            above = (self.first_leaf + row) >> self._up
            self._array[:, above] += highest - self._array[:, above[:1]]

    def add_rows(self, rows: Tensor) -> None:
        """`add` for row numbers on the device."""
        nodes = rows.expand(self.seeds, -1) + self.first_leaf
        self.tree[self._places(nodes)] = self.highest.expand_as(nodes)
        self._refresh(nodes)

    def _refresh(self, node: Tensor) -> None:
        """Recompute the sums above the given leaves. Leaves that share a node write the same sum."""
        for _ in range(self.depth):
            node = node >> 1
            self.tree[self._places(node)] = self._sums(2 * node) + self._sums(2 * node + 1)

    def _sums(self, nodes: Tensor) -> Tensor:
        """The sums of nodes (seeds, batch) of each seed's tree."""
        return self.tree[self._places(nodes)]

    def _places(self, nodes: Tensor) -> Tensor:
        return nodes + torch.arange(self.seeds, device=self.device).unsqueeze(-1) * (2 * self.first_leaf)

    # --- state -----------------------------------------------------------------------------------------------------
    def tensors(self) -> list[Tensor]:
        """The tensors that an update changes."""
        return [self.tree, self.highest]

    def state(self, rows: Tensor) -> dict[str, Tensor]:
        """The priorities of `rows`, in that order."""
        return {"priorities": self.leaves.index_select(1, rows.to(self.device)).cpu(), "highest": self.highest.cpu()}

    def load(self, rows: Tensor, state: Mapping[str, Tensor]) -> None:
        """Restore the priorities of `rows`."""
        self.tree.zero_()
        self.leaves.index_copy_(1, rows.to(self.device), state["priorities"].to(self.device))
        self.highest.copy_(state["highest"])
        trees = self.tree.view(self.seeds, -1)
        for level in range(self.depth - 1, -1, -1):
            below = trees[:, 2 << level : 4 << level]
            trees[:, 1 << level : 2 << level] = below[:, ::2] + below[:, 1::2]


def priority_bytes(rows: int, seeds: int) -> int:
    """The bytes of the trees."""
    return 16 * seeds << (rows - 1).bit_length()
