"""What a report shows, read from a run directory that may be unfinished, cut short or partly missing."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rl_training.experiment.charts import LARGEST_DRAWN, Point

Row = dict[str, Any]
MOST_POINTS = 150


@dataclass(frozen=True)
class Run:
    """What a run directory holds, as far as it could be read."""

    info: Mapping[str, Any]
    config: str
    metrics: Sequence[Row]
    evaluations: Sequence[Row]
    video: bytes | None

    @property
    def seeds(self) -> list[int]:
        listed = self.info.get("seeds")
        return listed if isinstance(listed, list) and listed else sorted({row["seed"] for row in self.metrics}) or [0]

    @property
    def failed_seeds(self) -> Mapping[str, Any]:
        return as_mapping(self.info.get("failed_seeds"))

    def final_metric(self, name: str) -> float | None:
        return as_number(as_mapping(self.info.get("metrics")).get(name))


def load_run(run_dir: Path) -> Run:
    video = run_dir / "video.webm"
    return Run(
        info=as_mapping(_parse_json(_read_text(run_dir / "run.json"))),
        config=_read_text(run_dir / "config.yaml"),
        metrics=_read_rows(run_dir / "metrics.jsonl"),
        evaluations=[row for row in _read_rows(run_dir / "evaluations.jsonl") if episode_returns(row)],
        video=video.read_bytes() if video.is_file() else None,
    )


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _read_rows(path: Path) -> list[Row]:
    """Complete rows by step; a line cut short by a crash is skipped, and a row written again replaces the first."""
    rows: dict[tuple[float, int], Row] = {}
    for line in _read_text(path).split("\n"):
        row = as_mapping(_parse_json(line))
        step, seed = as_number(row.get("step")), row.get("seed", 0)
        if step is not None and isinstance(seed, int):
            rows[step, seed] = {**row, "step": step, "seed": seed}
    return [rows[key] for key in sorted(rows)]


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def as_number(value: Any) -> float | None:
    """A number that can be averaged and drawn, else None: nan, infinities and what would overflow are left out."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < LARGEST_DRAWN else None


def episode_returns(row: Row) -> list[float]:
    values = row.get("returns")
    return [value for value in map(as_number, values) if value is not None] if isinstance(values, list) else []


def mean_of(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def std_of(values: Sequence[float]) -> float:
    centre = mean_of(values)
    return math.sqrt(mean_of([(value - centre) ** 2 for value in values]))


def final_returns(run: Run) -> dict[int, float]:
    """Mean return of each seed's last evaluation; a failed seed has no final one."""
    rows = (row for row in run.evaluations if str(row["seed"]) not in run.failed_seeds)
    return {row["seed"]: mean_of(episode_returns(row)) for row in rows}


def wall_seconds(run: Run) -> float | None:
    elapsed = [value for row in run.metrics if (value := as_number(row.get("time/time_elapsed")))]
    if elapsed:  # counts training only; the clock between start and end also counts the time a run lay stopped
        return max(elapsed)
    try:
        started, ended = (datetime.fromisoformat(str(run.info.get(key))) for key in ("started", "ended"))
        return (ended - started).total_seconds()
    except (ValueError, TypeError):
        return None


def curve_points(rows: Sequence[Row], values_of: Callable[[Row], list[float]], many_seeds: bool) -> list[Point]:
    """Mean with lowest and highest: over seeds where there are several, else over the values of one place."""
    steps = sorted({row["step"] for row in rows})
    wide = max(1, math.ceil(len(steps) / MOST_POINTS))
    place = {step: steps[min(i - i % wide + wide, len(steps)) - 1] for i, step in enumerate(steps)}
    gathered: dict[float, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if values := values_of(row):
            gathered[place[row["step"]]][row["seed"]] += values
    points = []
    for step, by_seed in gathered.items():
        if many_seeds:
            values = [mean_of(one) for one in by_seed.values()]
        else:
            values = [value for one in by_seed.values() for value in one]
        points.append(Point(step, mean_of(values), min(values), max(values)))
    return points
