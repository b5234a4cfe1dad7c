"""How target networks follow the networks that learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Polyak:
    """Targets move the share `tau` of the way to their groups at every update of the phase `after`."""

    groups: Mapping[str, str]  # target group -> the group it follows
    tau: float
    after: str


@dataclass(frozen=True)
class HardCopy:
    """Targets become equal to their groups whenever the environment steps pass a multiple of `every`."""

    groups: Mapping[str, str]  # target group -> the group it follows
    every: int


TargetUpdate = Polyak | HardCopy
