"""When something happens, and how a value moves over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Every:
    """True whenever a counter that may jump (a vector step adds `num_envs`) passes a multiple of `interval`."""

    interval: int

    def passed(self, before: int, now: int) -> bool:
        return now // self.interval > before // self.interval


def linear(start: float, end: float, progress: float) -> float:
    """From `start` to `end` as `progress` goes from 0 to 1, then `end`."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def cosine(start: float, progress: float) -> float:
    """From `start` to zero along half a cosine as `progress` goes from 0 to 1."""
    return start * 0.5 * (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))
