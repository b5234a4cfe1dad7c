"""The flat buffer of a parameter group.

Each parameter is a contiguous block [seed, *shape] of it, so Adam, Polyak averaging and copies are one operation on one
tensor for any number of layers and seeds, while the networks get ordinary contiguous tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

Params = dict[str, Tensor]
Groups = dict[str, Params]
ALIGNMENT = 16  # floats: 64 bytes, as vectorised kernels and tensor cores need


class GroupLayout:
    """The position of each parameter in its group's buffer."""

    def __init__(self, shapes: Mapping[str, torch.Size], seeds: int) -> None:
        self.seeds = seeds
        self.shapes = dict(shapes)
        self.blocks: list[tuple[str, int, int, int]] = []  # name, start, length, padding after it
        start = 0
        for name, shape in self.shapes.items():
            length = seeds * shape.numel()
            padding = -length % ALIGNMENT
            self.blocks.append((name, start, length, padding))
            start += length + padding
        self.size = start

    def stack(self, members: Sequence[Mapping[str, Tensor]], device: torch.device) -> Tensor:
        """The buffer of a group whose seeds were built one by one."""
        flat = torch.zeros(self.size, device=device)
        views = self.views(flat)
        for name, view in views.items():
            for seed, member in enumerate(members):
                view[seed].copy_(member[name].detach())
        return flat

    def views(self, flat: Tensor) -> Params:
        """Each parameter with its seed axis, sharing the buffer's memory."""
        return {
            name: flat.narrow(0, start, length).view(self.seeds, *self.shapes[name])
            for name, start, length, _ in self.blocks
        }

    def owners(self, device: torch.device) -> Tensor:
        """The seed of each element of the buffer; of one seed, a single zero that broadcasts."""
        if self.seeds == 1:
            return torch.zeros(1, dtype=torch.int64, device=device)
        owners = torch.zeros(self.size, dtype=torch.int64, device=device)
        for _, start, length, _ in self.blocks:
            every = torch.arange(self.seeds, device=device).repeat_interleave(length // self.seeds)
            owners[start : start + length] = every
        return owners

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The inverse of `views`, as one concatenation."""
        pieces = []
        for name, _, _, padding in self.blocks:
            tensor = tensors[name].reshape(-1)
            pieces.append(tensor)
            if padding:
                pieces.append(tensor.new_zeros(padding))
        return torch.cat(pieces)
