"""Learning curves: one seed of one algorithm on one task, and the CSV format in which they are exchanged."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError, did_you_mean, shown
from rl_training.core.statistics import Array

CSV_COLUMNS = ("exp_name", "env_name", "seed", "metric", "env_step", "value")
RETURN = "return"  # the mean return of an evaluation
# Names of a return in other libraries' files, the first one found is used.
RETURN_NAMES = (
    RETURN, "eval/mean_reward", "eval/return", "eval/episodic_return", "evaluation/return", "test/reward",
    "charts/episodic_return", "rollout/ep_rew_mean", "train/episode_reward",
)  # fmt: skip


@dataclass(frozen=True)
class Curve:
    """The values of a metric over the steps of one seed."""

    name: str  # the algorithm, or what its user calls it
    task: str  # the environment
    seed: int
    steps: NDArray[np.int64]
    values: Array
    metric: str = RETURN
    source: str = ""  # the file or run it was read from
    settings: Mapping[str, Any] = field(default_factory=dict)  # of the algorithm, by dotted name; empty: unknown
    task_settings: Mapping[str, Any] = field(default_factory=dict)  # of the environment

    @property
    def final(self) -> float:
        return float(self.values[-1])

    @property
    def best(self) -> float:
        return float(self.values.max())

    @property
    def area(self) -> float:
        """The area under the curve divided by its steps, which is an average value."""
        if len(self.steps) < 2 or self.steps[-1] == self.steps[0]:
            return self.final
        widths = np.diff(self.steps).astype(np.float64)
        return float((widths * (self.values[1:] + self.values[:-1]) / 2).sum() / widths.sum())


def make_curve(name: str, task: str, seed: int, points: Iterable[tuple[float, float]], **more: Any) -> Curve | None:
    """A curve of (step, value) pairs in any order; values that are not finite are left out. None: nothing is left."""
    found = {int(step): float(value) for step, value in points if math.isfinite(step) and math.isfinite(value)}
    if not found:
        return None
    steps = np.array(sorted(found), dtype=np.int64)
    return Curve(name, task, seed, steps, np.array([found[int(step)] for step in steps]), **more)


def chosen_metric(available: Iterable[str], wanted: str | None, where: str) -> str:
    """The metric to read from a file: the wanted one, or the file's return, or its only one."""
    names = list(dict.fromkeys(available))
    candidates = RETURN_NAMES if wanted in (None, RETURN) else (wanted,)
    found = next((name for name in candidates if name in names), None)
    if found is None and wanted is None and len(names) == 1:
        found = names[0]
    if found is None:
        listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        hint = did_you_mean(wanted or RETURN, names)
        raise UserError(f"{where}: has no metric {wanted or RETURN}; it has {listed or 'none'}{hint}")
    return found


def read_csv(path: Path, metric: str | None = None) -> list[Curve]:
    """The curves of a CSV file with the columns exp_name, env_name, seed, metric, env_step and value."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a text file") from error
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        columns = [str(name).strip() for name in reader.fieldnames or ()]
        missing = [name for name in CSV_COLUMNS if name not in columns]
        if missing:
            raise UserError(f"{path}: lacks the columns {', '.join(missing)}; needed are {', '.join(CSV_COLUMNS)}")
        reader.fieldnames = columns
        rows = list(reader)
    except csv.Error as error:
        raise UserError(f"{path}: not comma-separated values ({error})") from error
    if not rows:
        raise UserError(f"{path}: has no rows")
    chosen = chosen_metric((row["metric"] for row in rows), metric, str(path))
    gathered: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    for line, row in enumerate(rows, 2):
        if row["metric"] == chosen:
            seed, step, value = (_number(row[name], path, line, name) for name in ("seed", "env_step", "value"))
            gathered.setdefault((row["exp_name"], row["env_name"], int(seed)), []).append((step, value))
    made = [
        make_curve(name, task, seed, points, metric=chosen, source=str(path))
        for (name, task, seed), points in gathered.items()
    ]
    return [curve for curve in made if curve is not None]


def _number(text: str | None, path: Path, line: int, column: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        raise UserError(f"{path}:{line}: {column} must be a number, got {shown(text)}") from None
    if column != "value" and (not math.isfinite(value) or value != int(value)):
        raise UserError(f"{path}:{line}: {column} must be a whole number, got {shown(text)}")
    return value


def to_csv(curves: Iterable[Curve]) -> str:
    """The curves as CSV, which `read_csv` reads again."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for one in curves:
        for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True):
            writer.writerow([one.name, one.task, one.seed, one.metric, step, repr(value)])
    return text.getvalue()
