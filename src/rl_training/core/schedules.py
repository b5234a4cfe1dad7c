"""Schedules: intervals of a counter, and values that change over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Every:
    """Multiples of `interval` on a counter that may jump (a vector step adds `num_envs`)."""

    interval: int

    def passed(self, before: int, now: int) -> bool:
        """Whether the counter reached or passed a multiple between `before` and `now`."""
        return now // self.interval > before // self.interval


def linear(start: float, end: float, progress: float) -> float:
    """Linear interpolation from `start` to `end` as `progress` goes from 0 to 1, then `end`."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def cosine(start: float, end: float, progress: float) -> float:
    """Half a cosine from `start` to `end` as `progress` goes from 0 to 1, then `end`."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(max(progress, 0.0), 1.0)))


SCHEDULES = {"constant": lambda start, end, progress: start, "linear": linear, "cosine": cosine}
