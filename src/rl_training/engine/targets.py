"""Update rules of target networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Polyak:
    """Move targets by the fraction `tau` towards their groups at every update of the phase `after`."""

    groups: Mapping[str, str]  # target group -> the group it follows
    tau: float
    after: str


@dataclass(frozen=True)
class HardCopy:
    """Copy the groups to their targets whenever the environment steps pass a multiple of `every`."""

    groups: Mapping[str, str]  # target group -> the group it follows
    every: int


TargetUpdate = Polyak | HardCopy
