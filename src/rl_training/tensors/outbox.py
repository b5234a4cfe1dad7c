"""What a step of the loop sends to a GPU: written into one pinned host buffer, sent by one copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # shape and dtype by name
ALIGNMENT = 16  # of every tensor in the buffer, in bytes


class Outbox:
    """A host buffer and its copy on a device. Each sender reserves a compartment before the first `put`."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.bytes = device, 0
        self._compartments: list[Compartment] = []
        self._slots: list[Tensor] = []  # on the host: one is filled while the copy of the other may be under way
        self._events: list[torch.cuda.Event] = []
        self._slot, self._unsent = 0, False

    def reserve(self, layout: Layout) -> Compartment:
        """A compartment for tensors of this layout."""
        assert not self._slots, "the outbox is in use"
        compartment = Compartment(self, layout)
        self._compartments.append(compartment)
        return compartment

    def send(self) -> None:
        """Start the copy of everything to the device, in stream order; without new values, do nothing."""
        if not self._unsent:
            return
        sent, self._slot, self._unsent = self._slot, 1 - self._slot, False
        self._copy.copy_(self._slots[sent], non_blocking=True)
        if self._events:
            self._events[sent].record()
            self._events[self._slot].synchronize()  # the copy before: long done, unless nothing waits for the device
        self._slots[self._slot].copy_(self._slots[sent])  # a compartment that gets no new values keeps its last ones

    def slot_to_fill(self) -> int:
        """The number of the host buffer to write to; its content counts as not sent."""
        if not self._slots:
            self._allocate()
        self._unsent = True
        return self._slot

    def _allocate(self) -> None:
        on_gpu = self.device.type == "cuda"
        self._slots = [torch.zeros(self.bytes, dtype=torch.uint8, pin_memory=on_gpu) for _ in range(2)]
        self._events = [torch.cuda.Event() for _ in range(2)] if on_gpu else []
        self._copy = torch.zeros(self.bytes, dtype=torch.uint8, device=self.device)
        for compartment in self._compartments:
            compartment.use(self._slots, self._copy)


class Compartment:
    """The tensors of one sender in an outbox."""

    def __init__(self, outbox: Outbox, layout: Layout) -> None:
        self.outbox = outbox
        self._places: dict[str, tuple[int, int, tuple[int, ...], torch.dtype]] = {}
        for name, (shape, dtype) in layout.items():
            size = torch.Size(shape).numel() * dtype.itemsize
            self._places[name] = outbox.bytes, size, shape, dtype
            outbox.bytes += -(-size // ALIGNMENT) * ALIGNMENT
        self._arrays: list[dict[str, NDArray[Any]]] = []
        self._tensors: dict[str, Tensor] = {}

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The values sent last, on the device: the same tensors at every step."""
        assert self._tensors, "nothing was put into the outbox"
        return self._tensors

    def put(self, **values: NDArray[Any] | float) -> None:
        """Write values, in host memory, for the next `send`."""
        slot = self.outbox.slot_to_fill()
        arrays = self._arrays[slot]
        for name, value in values.items():
            arrays[name][...] = value

    def use(self, slots: list[Tensor], copy: Tensor) -> None:
        """Write to the host buffers `slots` and find what was sent in `copy`."""
        self._arrays = [{name: one.numpy() for name, one in self._views(slot).items()} for slot in slots]
        self._tensors = self._views(copy)

    def _views(self, buffer: Tensor) -> dict[str, Tensor]:
        return {
            name: buffer[start : start + size].view(dtype).view(shape)
            for name, (start, size, shape, dtype) in self._places.items()
        }
