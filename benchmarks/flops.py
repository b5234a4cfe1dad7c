"""Floating-point operations of an update, counted from the sizes of its matrix products."""

from __future__ import annotations

from functools import cache

from sources import SHAPES, filled_source, parse_changes
from torch.utils.flop_counter import FlopCounterMode

from rl_training.algorithms.registry import learner_class


@cache
def update_flops(algo: str, shape: str, changes: tuple[str, ...] = ()) -> int:
    """The operations of one update of one seed; a multiplication and an addition are two."""
    cls = learner_class(algo)
    settings = parse_changes(cls, changes)
    learner = cls.create(SHAPES[shape], settings, [0])
    source, counts = filled_source(SHAPES[shape], settings, 1, "cpu"), []
    learner.train(source, 1, 0)  # the first one tries the losses for the names of their metrics
    period = max(phase.every for phase in learner.engine.phases)
    for number in range(1, 1 + period):  # of a delayed policy, the mean over its period
        with FlopCounterMode(display=False) as counter:
            learner.train(source, 1, number)
        counts.append(counter.get_total_flops())
    return sum(counts) // len(counts)
