"""Metrics of updates, summed on the device until they are read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from rl_training.engine.phases import Due, Metrics


class LatestMetrics(Mapping[str, float]):
    """Metrics of the newest update of the first seed; only reading a value waits for the device."""

    def __init__(self, names: Sequence[str], values: Tensor) -> None:
        self._rows = {name: row for row, name in enumerate(names)}
        self._values = values

    def __getitem__(self, name: str) -> float:
        return float(self._values[self._rows[name], 0])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return repr(dict(self))


class MetricSums:
    """For every phase, the sum and the newest value of each of its metrics, (metrics, seeds)."""

    def __init__(self, phases: Sequence[str], seeds: int, device: torch.device) -> None:
        self.seeds, self.device = seeds, device
        self.names: dict[str, tuple[str, ...]] = {}  # by phase; empty before the first batch
        self.sums: dict[str, Tensor] = {}
        self.latest: dict[str, Tensor] = {}
        self.counts = dict.fromkeys(phases, 0)

    def allocate(self, names: Mapping[str, Sequence[str]]) -> None:
        """Allocate sums and newest values for the metrics of each phase."""
        for phase, metrics in names.items():
            self.names[phase] = tuple(sorted(metrics))
            self.sums[phase] = torch.zeros(len(metrics), self.seeds, device=self.device)
            self.latest[phase] = torch.full((len(metrics), self.seeds), torch.nan, device=self.device)

    def check_names(self, names: Mapping[str, Sequence[str]]) -> None:
        """Reject names from a loaded state that are not those of the losses."""
        expected = {phase: tuple(sorted(metrics)) for phase, metrics in names.items()}
        if self.names != expected:
            raise ValueError(f"the metrics are {self.names}, this learner's are {expected}")

    def add(self, phase: str, metrics: Metrics, failed: Tensor) -> Tensor:
        """Add one update's metrics. Returns which seeds had only finite values; `failed` seeds keep their last ones."""
        values = torch.stack([metrics[name].reshape(self.seeds) for name in self.names[phase]])
        self.latest[phase].copy_(torch.where(failed, self.latest[phase], values))
        self.sums[phase].add_(values)
        return values.isfinite().all(0)

    def count(self, due: Due) -> None:
        for phase in due:
            self.counts[phase] += 1

    def set_counts(self, counts: Sequence[int]) -> None:
        self.counts = dict(zip(self.counts, counts, strict=True))

    def newest(self) -> LatestMetrics:
        names = [name for metrics in self.names.values() for name in metrics]
        return LatestMetrics(names, torch.cat(list(self.latest.values())))

    def at_failure(self, seed: int, ran: Sequence[str]) -> tuple[list[str], dict[str, float]]:
        """The metrics of a failed seed that became nonfinite first, and all metrics of the phases that `ran`."""
        phases = [
            dict(zip(names, self.latest[phase][:, seed].tolist(), strict=True))
            for phase, names in self.names.items()
            if phase in ran
        ]
        nonfinite = [[name for name, value in phase.items() if not math.isfinite(value)] for phase in phases]
        return next(filter(None, nonfinite), []), {name: value for phase in phases for name, value in phase.items()}

    def take_means(self) -> list[dict[str, float | None]]:
        """Per seed, the mean of each metric since the last call; None where its phase has not run."""
        rows: list[dict[str, float | None]] = [{} for _ in range(self.seeds)]
        for phase, names in self.names.items():
            count = self.counts[phase]
            means = (self.sums[phase] / max(count, 1)).tolist()
            for name, values in zip(names, means, strict=True):
                for row, value in zip(rows, values, strict=True):
                    row[name] = value if count else None
            self.sums[phase].zero_()
            self.counts[phase] = 0
        return rows

    def state(self) -> dict[str, Tensor]:
        state = {"metric_counts": torch.tensor(list(self.counts.values()))}
        for phase, names in self.names.items():
            for row, name in enumerate(names):
                state[f"metric_sum.{phase}.{name}"] = self.sums[phase][row]
                state[f"metric_latest.{phase}.{name}"] = self.latest[phase][row]
        return state

    def adopt_names(self, state: Mapping[str, Tensor]) -> bool:
        """Take the metric names from a state before it is loaded; it has none if it was saved before the first batch.

        True if tensors in use were replaced.
        """
        in_use = bool(self.names)
        found = [key.split(".", 2) for key in state if key.startswith("metric_sum.") and key.count(".") >= 2]
        if not found:
            self.names, self.sums, self.latest = {}, {}, {}
            return in_use
        if not in_use:
            self.allocate({phase: [name for _, of, name in found if of == phase] for phase in self.counts})
        return False
