"""Figures of a comparison for papers, as SVG and PDF (extra `figures`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError
from rl_training.studies.tables import Comparison, TaskTable

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")  # Okabe and Ito's
WIDTH, HEIGHT = 3.4, 2.4  # inches: a column of a paper
STYLE: dict[str, Any] = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "pdf.fonttype": 42,
         "svg.hashsalt": "rl-training", "legend.frameon": False, "lines.linewidth": 1.4}  # fmt: skip


def write_figures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write curves, profiles and probabilities of improvement of every task; returns the files."""
    try:
        import matplotlib
    except ImportError as error:
        raise UserError("figures need matplotlib; pip install 'rl-training[figures]'") from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        style: Any = {**matplotlib.rcParamsDefault, **STYLE}  # whatever the user's own settings are
        with matplotlib.rc_context(style):
            for table in (*comparison.tasks, *([comparison.across] if comparison.across else [])):
                for kind, figure in _figures(comparison, table):
                    name = re.sub(r"[^A-Za-z0-9._-]+", "_", f"{table.task}-{kind}").strip("_")
                    for suffix, metadata in ((".svg", {"Date": None}), (".pdf", {"CreationDate": None})):
                        path = folder / f"{name}{suffix}"
                        figure.savefig(path, metadata=metadata, bbox_inches="tight")
                        written.append(path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror})") from error
    return written


def _figures(comparison: Comparison, table: TaskTable) -> Iterator[tuple[str, Any]]:
    if any(row.curve for row in table.variants):
        yield "curves", _curves(comparison, table)
    yield "scores", _scores(comparison, table)
    yield "profile", _profiles(comparison, table)
    if table.improvements:
        yield "improvement", _improvements(table)


def _axes(title: str, x_label: str, y_label: str, height: float = HEIGHT) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    return figure, axes


def _legend(axes: Any) -> None:
    """The names below the axes, where they cover nothing."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))


def _color(table: TaskTable, name: str) -> str:
    """One colour for an algorithm in all figures of a task."""
    names = sorted(row.name for row in table.variants)
    return COLORS[names.index(name) % len(COLORS)]


def _curves(comparison: Comparison, table: TaskTable) -> Any:
    figure, axes = _axes(table.task, "steps", comparison.metric)
    for row in table.variants:
        steps, values = [at.step for at in row.curve], [at.value for at in row.curve]
        color = _color(table, row.name)
        axes.plot(steps, values, color=color, label=row.name, marker="o" if len(steps) == 1 else None)
        band = [(at.step, at.low, at.high) for at in row.curve if at.low is not None and at.high is not None]
        if band:
            places, low, high = zip(*band, strict=True)
            axes.fill_between(places, low, high, color=color, alpha=0.2, linewidth=0)
    axes.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4))
    _legend(axes)
    return figure


def _scores(comparison: Comparison, table: TaskTable) -> Any:
    """The interval of every algorithm as a bar, the statistic as a line in it."""
    rows = table.variants[::-1]
    figure, axes = _axes(table.task, f"{comparison.score} {comparison.metric}", "", 0.7 + 0.28 * len(rows))
    for place, row in enumerate(rows):
        found = getattr(row, comparison.score)
        color = _color(table, row.name)
        if found.low is not None and found.high is not None:
            axes.barh(place, found.high - found.low, left=found.low, height=0.6, color=color, alpha=0.6)
        axes.plot([found.value, found.value], [place - 0.3, place + 0.3], color=color)
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    return figure


def _profiles(comparison: Comparison, table: TaskTable) -> Any:
    label = f"{comparison.score} {comparison.metric} τ"
    figure, axes = _axes(table.task, label, "fraction of runs with a score > τ")
    for one in table.profiles:
        color = _color(table, one.name)
        axes.plot(table.thresholds, one.values, color=color, label=one.name)
        if one.low is not None and one.high is not None:
            axes.fill_between(table.thresholds, one.low, one.high, color=color, alpha=0.2, linewidth=0)
    axes.set_ylim(-0.02, 1.02)
    _legend(axes)
    return figure


def _improvements(table: TaskTable) -> Any:
    pairs = table.improvements[::-1]
    figure, axes = _axes(table.task, "P(X > Y)", "", 0.7 + 0.28 * len(pairs))
    for place, one in enumerate(pairs):
        if one.low is not None and one.high is not None:
            axes.barh(place, one.high - one.low, left=one.low, height=0.6, color=COLORS[0], alpha=0.5)
        axes.plot([one.probability] * 2, [place - 0.3, place + 0.3], color=COLORS[0])
    axes.axvline(0.5, color="#888888", linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(pairs)), [f"{one.first} > {one.second}" for one in pairs])
    axes.set_xlim(0, 1)
    return figure
