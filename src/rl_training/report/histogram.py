"""Histograms as inline SVG, in the style of the line charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from rl_training.report.chart_style import COLORS
from rl_training.report.charts import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Axis,
    format_number,
    format_ticks,
    frame,
    nice_ticks,
    value_axis,
)
from rl_training.report.html import data_table

MAX_BINS = 16


def histogram(
    groups: Mapping[str, Sequence[float]], title: str, x_label: str, note: str = "", unit: str = "episodes"
) -> str:
    """How many values of each group are in each bin; the bins are round numbers and common to all groups."""
    values = [value for many in groups.values() for value in many]
    edges = _edges(values)
    counts = {name: _counts(many, edges) for name, many in groups.items()}
    width, height = 470, 260
    x_axis = Axis(edges[0], edges[-1], LEFT, width - RIGHT, tuple(edges[:: max(1, math.ceil(len(edges) / 8))]))
    y_axis = value_axis([0, max(max(many) for many in counts.values())], height - BOTTOM, TOP, max_ticks=5)
    parts = [*frame(x_axis, y_axis, x_label, unit)]
    for index, (name, many) in enumerate(counts.items()):
        for number, count in enumerate(many):
            left, right = x_axis(edges[number]), x_axis(edges[number + 1])
            wide = (right - left - 2) / len(counts)
            about = f"{name}: {count} from {format_number(edges[number])} to {format_number(edges[number + 1])}"
            parts.append(
                f'<g class="bar s{index % COLORS}"><rect x="{left + 1 + index * wide:.1f}" y="{y_axis(count):.1f}" '
                f'width="{wide:.1f}" height="{y_axis.start - y_axis(count):.1f}"/><title>{escape(about)}</title></g>'
            )
    keys = [f'<span class="key s{i % COLORS}">{escape(name)}</span>' for i, name in enumerate(counts)]
    caption = f"<b>{escape(title)}</b>{''.join(keys if len(keys) > 1 else [])}"
    caption += f"<span>{escape(note)}</span>" if note else ""
    bins = zip(format_ticks(edges[:-1]), format_ticks(edges[1:]), *counts.values(), strict=True)
    rows = [[f"{low} to {high}", *map(str, many)] for low, high, *many in bins]
    return (
        f'<figure class="chart"><figcaption>{caption}</figcaption><svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>{data_table([x_label, *counts], rows)}</figure>'
    )


def _edges(values: Sequence[float]) -> tuple[float, ...]:
    """Round edges of at most `MAX_BINS` bins around all values."""
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-150):
        low, high = low - max(0.5, 0.1 * abs(low)), high + max(0.5, 0.1 * abs(high))
    return nice_ticks(low, high, min(MAX_BINS, max(5, round(2 * math.sqrt(len(values))))))


def _counts(values: Sequence[float], edges: Sequence[float]) -> list[int]:
    """How many values each bin has; the last one includes its upper edge."""
    counts = [0] * (len(edges) - 1)
    width = (edges[-1] - edges[0]) / len(counts)
    for value in values:
        counts[min(len(counts) - 1, max(0, int((value - edges[0]) / width)))] += 1
    return counts
