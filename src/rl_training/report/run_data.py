"""The data of a report, read from a run directory that may be unfinished or incomplete."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rl_training.core.statistics import summarize, uses_iqm
from rl_training.files.json_lines import read_rows
from rl_training.files.run_directory import is_locked
from rl_training.report.charts import MAX_DRAWN, Point

Row = dict[str, Any]
MAX_POINTS = 150


def planned_steps(info: Mapping[str, Any], config: Mapping[str, Any]) -> Any:
    """The `total_timesteps` of a run: of its last resume, or of the config with which it began."""
    return as_mapping(info.get("asked")).get("total_timesteps", config.get("total_timesteps"))


@dataclass(frozen=True)
class Run:
    """The readable content of a run directory."""

    info: Mapping[str, Any]
    config: str
    metrics: Sequence[Row]
    evaluations: Sequence[Row]
    video: bytes | None  # of the best agent
    last_video: bytes | None = None  # of the last agent, where it is another one
    locked: bool | None = None  # whether a process is running it; None: unknown
    path: Path | None = None

    @property
    def status(self) -> str:
        """The recorded status, but `interrupted` for a run whose process ended without recording one."""
        status = str(self.info.get("status", "unknown"))
        return "interrupted" if status == "running" and self.locked is False else status

    @property
    def seeds(self) -> list[int]:
        listed = self.info.get("seeds")
        return listed if isinstance(listed, list) and listed else sorted({row["seed"] for row in self.metrics}) or [0]

    @property
    def failed_seeds(self) -> Mapping[str, Any]:
        return as_mapping(self.info.get("failed_seeds"))

    @property
    def dataset(self) -> Mapping[str, Any]:
        """The recorded summary of the dataset; empty for a run without one."""
        return as_mapping(self.info.get("dataset"))

    @property
    def offline_steps(self) -> float:
        """Updates on the dataset alone, before the first step of an environment."""
        if not self.dataset:
            return 0
        recorded = as_number(self.dataset.get("offline_steps"))
        return math.inf if recorded is None else recorded

    @property
    def unit(self) -> str:
        """The unit of the run's steps: environment steps, or updates where it learns from a dataset alone."""
        return "updates" if math.isinf(self.offline_steps) else "steps"

    @property
    def x_label(self) -> str:
        if not self.dataset:
            return "environment steps"
        return "updates" if math.isinf(self.offline_steps) else "updates, then environment steps"

    @property
    def steps(self) -> float | None:
        """The last step, as recorded at the end or else logged."""
        rows = [*self.metrics, *self.evaluations]
        recorded = self.final_metric("global_step")
        return recorded if recorded is not None else max((row["step"] for row in rows), default=None)

    @property
    def updates(self) -> float | None:
        recorded = self.final_metric("gradient_steps")
        logged = [value for row in self.metrics if (value := as_number(row.get("train/n_updates"))) is not None]
        return recorded if recorded is not None else max(logged, default=None)

    @property
    def concluded(self) -> bool:
        """Whether the recorded metrics are final; those of a resumed or interrupted run are of an earlier end."""
        return self.info.get("status") in ("finished", "stopped") and self.info.get("elapsed", 0) is not None

    def final_metric(self, name: str) -> float | None:
        if not self.concluded:
            return None
        return as_number(as_mapping(self.info.get("metrics")).get(name))


def load_run(run_dir: Path) -> Run:
    """Read a run directory; missing or invalid files are taken as empty."""
    return Run(
        info=as_mapping(_parse_json(_read_text(run_dir / "run.json"))),
        config=_read_text(run_dir / "config.yaml"),
        metrics=merged_rows(run_dir / "metrics.jsonl"),
        evaluations=[row for row in merged_rows(run_dir / "evaluations.jsonl") if episode_returns(row)],
        video=_read_video(run_dir / "video.webm"),
        last_video=_read_video(run_dir / "video_last.webm"),
        locked=is_locked(run_dir),
        path=run_dir,
    )


def _read_video(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _read_text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def merged_rows(path: Path) -> list[Row]:
    """One row per step and seed, merged from its lines: training and evaluation log the same step separately.

    A line cut short by a crash is skipped; of a value written twice the later one is used.
    """
    rows: dict[tuple[float, int], Row] = defaultdict(dict)
    for row in read_rows(path):
        step, seed = as_number(row.get("step")), row.get("seed", 0)
        if step is not None and isinstance(seed, int):
            rows[step, seed].update({**row, "step": step, "seed": seed})
    return [rows[key] for key in sorted(rows)]


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_number(value: Any) -> float | None:
    """A number that can be averaged and drawn; None for nan, infinities, overflowing numbers and other types."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < MAX_DRAWN else None


def episode_returns(row: Row) -> list[float]:
    """The returns in a row of evaluations."""
    values = row.get("returns")
    return [value for value in map(as_number, values) if value is not None] if isinstance(values, list) else []


def metric_values(name: str) -> Callable[[Row], list[float]]:
    """A function from a row to the values of one metric: one value or none."""

    def values_of(row: Row) -> list[float]:
        value = as_number(row.get(name))
        return [] if value is None else [value]

    return values_of


def mean_of(values: Sequence[float]) -> float:
    """The mean."""
    return math.fsum(values) / len(values)


def std_of(values: Sequence[float]) -> float:
    """The population standard deviation."""
    centre = mean_of(values)
    return math.sqrt(mean_of([(value - centre) ** 2 for value in values]))


def final_returns(run: Run) -> dict[int, float]:
    """Mean return of each seed's last evaluation; a failed seed has no final one."""
    rows = (row for row in run.evaluations if str(row["seed"]) not in run.failed_seeds)
    return {row["seed"]: mean_of(episode_returns(row)) for row in rows}


def best_returns(run: Run) -> dict[int, float]:
    """Mean return of each seed's best evaluation."""
    best: dict[int, float] = {}
    for row in run.evaluations:
        best[row["seed"]] = max(mean_of(episode_returns(row)), best.get(row["seed"], -math.inf))
    return best


def pace(run: Run) -> tuple[float | None, float | None]:
    """Seconds of training, and steps per second of one seed.

    As recorded at the end or else logged: unlike the two dates, these exclude the time during which a run was stopped.
    """
    if run.concluded and (recorded := as_number(run.info.get("elapsed"))):
        return recorded, run.steps / recorded if run.steps else None
    logged = [(value, row["step"]) for row in run.metrics if (value := as_number(row.get("time/time_elapsed")))]
    if logged:
        seconds, step = max(logged)
        return seconds, step / seconds
    try:
        started, ended = (datetime.fromisoformat(str(run.info.get(key))) for key in ("started", "ended"))
        between = (ended - started).total_seconds()
        return between, run.steps / between if run.steps and between > 0 else None
    except (ValueError, TypeError):
        return None, None


Values = Callable[[Row], list[float]]


def curve_points(rows: Sequence[Row], values_of: Values, many_seeds: bool) -> list[Point]:
    """Mean, minimum and maximum at each step: over seeds where there are several, else over the values."""
    points = []
    for step, by_seed in _gathered(rows, values_of).items():
        if many_seeds:
            values = [mean_of(one) for one in by_seed.values()]
        else:
            values = [value for one in by_seed.values() for value in one]
        points.append(Point(step, mean_of(values), min(values), max(values)))
    return points


def interval_points(rows: Sequence[Row], values_of: Values) -> list[Point]:
    """The interquartile mean over seeds and its 95 % interval at each step; of fewer than four seeds the mean alone."""
    points = []
    for step, by_seed in _gathered(rows, values_of).items():
        across = summarize([mean_of(one) for one in by_seed.values()])
        interval = across["interval"] if uses_iqm(across["n"]) else (None, None)
        points.append(Point(step, across["iqm"], *interval))
    return points


def seed_points(rows: Sequence[Row], values_of: Values) -> dict[int, list[Point]]:
    """The mean at each step of each seed."""
    found: dict[int, list[Point]] = defaultdict(list)
    for step, by_seed in _gathered(rows, values_of).items():
        for seed, values in by_seed.items():
            found[seed].append(Point(step, mean_of(values)))
    return found


def _gathered(rows: Sequence[Row], values_of: Values) -> dict[float, dict[int, list[float]]]:
    """The values at each step and seed; neighbouring steps are put together where there are very many."""
    steps = sorted({row["step"] for row in rows})
    width = max(1, math.ceil(len(steps) / MAX_POINTS))
    place = {step: steps[min(i - i % width + width, len(steps)) - 1] for i, step in enumerate(steps)}
    gathered: dict[float, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if values := values_of(row):
            gathered[place[row["step"]]][row["seed"]] += values
    return gathered
