"""Which operators of an update grow more than its work: a profile of two sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sources import SHAPES, filled_source, parse_changes
from torch.profiler import ProfilerActivity, profile

from rl_training.algorithms.registry import learner_class

UPDATES, SHOWN = 5, 8


def operator_times(algo: str, shape: str, words: Sequence[str], seeds: int, device: str) -> dict[str, float]:
    """Milliseconds of each operator in an eager update; on a GPU, those of its kernels."""
    cls = learner_class(algo)
    settings = parse_changes(cls, words)
    learner = cls.create(SHAPES[shape], settings, range(seeds), device=device)
    source = filled_source(SHAPES[shape], settings, seeds, device)
    learner.train(source, 2, 0)
    activities = [ProfilerActivity.CPU] if device == "cpu" else [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities) as found:
        for number in range(UPDATES):
            learner.train(source, 1, number + 1)
        if device != "cpu":
            torch.cuda.synchronize()
    name = "self_cpu_time_total" if device == "cpu" else "self_device_time_total"
    times = {event.key: getattr(event, name) / 1e3 / UPDATES for event in found.key_averages()}
    return {key: value for key, value in times.items() if value > 0}


def largest_growth(
    algo: str, shape: str, sides: Sequence[tuple[Sequence[str], int]], device: str, work_grows: float
) -> list[dict[str, Any]]:
    """The operators whose time grows most beyond the work, with their milliseconds at both sizes."""
    times = []
    for words, seeds in sides:
        own = [word for word in words if not word.startswith(("seeds=", "updates="))]
        times.append(operator_times(algo, shape, own, seeds, device))
    small, large = times
    beyond = {name: large[name] - work_grows * small.get(name, 0.0) for name in large}
    names = sorted(beyond, key=lambda name: -beyond[name])[:SHOWN]
    return [
        {"operator": name, "ms": [round(small.get(name, 0.0), 4), round(large[name], 4)],
         "beyond_work_ms": round(beyond[name], 4)}
        for name in names
    ]  # fmt: skip
