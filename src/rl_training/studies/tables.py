"""The tables of a comparison, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from rl_training.core.bounds import Bounds
from rl_training.studies.curves import Curve

SCORES = ("final", "best", "area")


@dataclass(frozen=True)
class Estimate:
    """A statistic with its 95 % interval; of fewer than four seeds a mean without one."""

    value: float
    low: float | None = None
    high: float | None = None
    statistic: str = "interquartile mean"


@dataclass(frozen=True)
class CurvePoint:
    """A point of a sample-efficiency curve."""

    step: int
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class VariantRow:
    """One algorithm with one set of settings on one task (or on all of them)."""

    name: str
    seeds: tuple[int, ...]
    steps: int  # of the shortest seed
    final: Estimate
    best: Estimate
    area: Estimate
    median: float  # of the final values; over several tasks the median of the tasks' means
    scores: tuple[float, ...]  # one per seed: what is ranked and compared
    optimality_gap: Estimate | None = None
    curve: tuple[CurvePoint, ...] = ()


@dataclass(frozen=True)
class Improvement:
    """The probability that a run of `first` is better than one of `second`."""

    first: str
    second: str
    probability: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Profile:
    """The fraction of a variant's runs with a score above each threshold."""

    name: str
    values: tuple[float, ...]
    low: tuple[float, ...] | None = None
    high: tuple[float, ...] | None = None


@dataclass(frozen=True)
class TaskTable:
    """Everything about one task; of `all tasks` the scores are normalised."""

    task: str
    variants: tuple[VariantRow, ...]  # the best first
    improvements: tuple[Improvement, ...]
    thresholds: tuple[float, ...]
    profiles: tuple[Profile, ...]
    bounds: Bounds | None = None


@dataclass(frozen=True)
class Comparison:
    """The tables of a comparison."""

    metric: str
    score: str  # final, best or area: what is ranked and compared
    tasks: tuple[TaskTable, ...]
    across: TaskTable | None = None  # over all tasks, on normalised scores
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    curves: tuple[Curve, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the curves of single seeds."""
        return {
            "metric": self.metric,
            "score": self.score,
            "tasks": [asdict(table) for table in self.tasks],
            "across": asdict(self.across) if self.across else None,
            "problems": list(self.problems),
            "notes": list(self.notes),
        }
