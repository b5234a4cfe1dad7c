"""Values that callbacks log for the next row of metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_training.core.checks import UserError, shown
from rl_training.files.json_lines import ROW_KEYS

Row = dict[str, Any]
Logged = Mapping[str, tuple[Sequence[str], int]]  # by name: a total for each seed, and the number of values in it


def as_number(name: str, value: Any) -> float:
    """A value of a metric as a float."""
    try:
        if isinstance(value, (str, bytes)) or np.ndim(value) > 0:
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise UserError(f"{name} must be a number, got {shown(value)}") from error


class LoggedValues:
    """Values that callbacks have logged since the last metric row: by name the last one, or the mean."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.seeds = tuple(seeds)
        self.totals: dict[str, list[float]] = {}  # one for each seed
        self.counts: dict[str, int] = {}  # values in a mean; 0: the last value alone counts

    def log(self, name: str, value: Any, mean: bool) -> None:
        """Log a value; with `mean` it is one of those that the next row has the mean of."""
        values = self._by_seed(name, value)
        before = self.counts.get(name, 0) if mean else 0
        if before:
            values = [total + one for total, one in zip(self.totals[name], values, strict=True)]
        self.totals[name], self.counts[name] = values, before + mean

    def _by_seed(self, name: Any, value: Any) -> list[float]:
        if not isinstance(name, str) or not name or name in ROW_KEYS:
            raise UserError(f"the name of a metric must be text other than step and seed, got {shown(name)}")
        if isinstance(value, str) or np.ndim(value) == 0:
            return [as_number(name, value)] * len(self.seeds)
        if len(value) != len(self.seeds):
            raise UserError(f"{name} must be a number or one for each seed ({len(self.seeds)}), got {shown(value)}")
        return [as_number(name, one) for one in value]

    def take(self) -> list[Row]:
        """The values of each seed's row, which are not logged again."""
        names, totals, counts = sorted(self.totals), self.totals, self.counts
        self.totals, self.counts = {}, {}
        return [{name: totals[name][seed] / max(counts[name], 1) for name in names} for seed in range(len(self.seeds))]

    def state(self) -> dict[str, Any]:
        # As text, since NaN and infinity are not JSON.
        return {name: [[repr(total) for total in self.totals[name]], self.counts[name]] for name in self.totals}

    def check(self, state: Logged) -> str | None:
        """The problem of a saved state, or None."""
        for name, (totals, count) in state.items():
            try:
                ok = len([float(total) for total in totals]) == len(self.seeds) and count >= 0
            except ValueError:
                ok = False
            if not ok:
                return f"logged.{name} must be a number for each seed and a count"
        return None

    def load(self, state: Logged) -> None:
        self.totals = {name: [float(total) for total in totals] for name, (totals, _) in state.items()}
        self.counts = {name: count for name, (_, count) in state.items()}
