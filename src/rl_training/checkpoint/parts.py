"""Stateful parts of a run: each has a name and saves, checks and loads its own state.

The saver loops over all parts, so no state is left out because another part is absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from rl_training.checkpoint.read import Checkpoint, DamagedCheckpoint
from rl_training.checkpoint.schema import invalid_file, parse_known
from rl_training.core.checks import UserError
from rl_training.files.tensor_files import Tensors

Values = TypeVar("Values")
TensorLayout = Mapping[str, tuple[Sequence[int], torch.dtype]]  # shape and dtype by name


@dataclass(frozen=True)
class PartState:
    """The state of one part, to be saved in a checkpoint."""

    values: dict[str, Any] = field(default_factory=dict)  # plain values, for state.json
    files: dict[str, Tensors] = field(default_factory=dict)  # tensor files by name, without the suffix
    linked: tuple[str, ...] = ()  # files of the previous checkpoint that have not changed


class StoredPart:
    """The state of one part in a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self.checkpoint, self.name = checkpoint, name
        if name not in checkpoint.state["parts"]:
            raise DamagedCheckpoint(f"{checkpoint.path.name} damaged (its {name} is missing)")
        self.values: dict[str, Any] = checkpoint.state["parts"][name]

    def parse(self, cls: type[Values]) -> Values:
        """The part's values as a dataclass with checked fields; other values are ignored."""
        try:
            return parse_known(cls, self.values)  # type: ignore[no-any-return]
        except UserError as error:
            raise self.invalid(error) from error

    def tensors(self, file: str) -> dict[str, Tensor]:
        """The tensors of one file, verified."""
        return self.checkpoint.tensors(file)

    def invalid(self, reason: object) -> UserError:
        """The error for invalid stored values."""
        return invalid_file(self.checkpoint.path, reason)

    def check_tensors(self, file: str, found: Mapping[str, Tensor], layout: TensorLayout) -> None:
        """Reject a tensor file that lacks a tensor of `layout`, or has one of another shape or dtype."""
        for key, (shape, dtype) in layout.items():
            tensor = found.get(key)
            if tensor is None:
                raise self.invalid(f"{file}: {key} is missing")
            if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype:
                actual, expected = f"{tensor.dtype} {tuple(tensor.shape)}", f"{dtype} {tuple(shape)}"
                raise self.invalid(f"{file}: {key} is {actual}, expected {expected}")


class Part(Protocol):
    """One stateful part of a run."""

    name: str

    def state(self, previous: Checkpoint | None) -> PartState:
        """The state that a resume needs; `previous` is the newest checkpoint, whose files may be linked."""

    def check(self, stored: StoredPart) -> None:
        """Reject stored values that this part cannot have saved, before anything is loaded."""

    def load(self, stored: StoredPart) -> None:
        """Put the stored state back."""


def restore(checkpoint: Checkpoint, parts: Sequence[Part]) -> None:
    """Check what a checkpoint holds of every part, then load it."""
    stored = {part.name: StoredPart(checkpoint, part.name) for part in parts}
    for part in parts:
        part.check(stored[part.name])
    for part in parts:
        part.load(stored[part.name])
    checkpoint.kept.clear()  # the run refers to its newest checkpoint until the next one
