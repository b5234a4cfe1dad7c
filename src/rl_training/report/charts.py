"""Line charts as inline SVG: no script, round ticks, values on hover, colours from the page's CSS variables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby, pairwise
from typing import Literal

from rl_training.report.chart_style import COLORS
from rl_training.report.html import data_table

# Larger numbers overflow in the range of an axis, so they count as missing, like nan and inf.
MAX_DRAWN = 1e150
MIN_RANGE = 1e-150
UNITS = ((1e9, 1e9, "B"), (1e6, 1e6, "M"), (1e4, 1e3, "k"), (0.0, 1.0, ""))
Scale = Literal["from zero", "from data", "log"]
LEFT, RIGHT, TOP, BOTTOM = 50.0, 14.0, 24.0, 38.0


@dataclass(frozen=True)
class Point:
    """A point of a curve; `low` and `high` bound the shaded band around it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A named curve, with a marker at each point if `markers` is set.

    A `thin` one is in the background: not in the legend, the table and the values on hover.
    """

    name: str
    points: Sequence[Point]
    markers: bool = False
    thin: bool = False
    dashed: bool = False
    color: int | None = None  # by default the curve's place in the chart


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to pixels from `start` to `end`, which may be the smaller."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log(one) if self.log else one for one in (self.low, self.high, value))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def labels(self) -> list[str]:
        return [f"{tick:,.12g}" for tick in self.ticks] if self.log else format_ticks(self.ticks)


def line_chart(
    series: Sequence[Series],
    title: str,
    x_label: str,
    y_label: str,
    *,
    note: str = "",
    x_name: str = "step",
    size: tuple[int, int] = (480, 260),
    scale: Scale = "from zero",
) -> str:
    """One figure: title and note in HTML, curves with bands in SVG and a table, or a remark that there is no data.

    `scale`: the horizontal axis starts at zero or at the data; "log": both axes are logarithmic, of positive values.
    """
    width, height = size
    drawn = [replace(one, points=_drawable(one.points)) for one in series]
    drawn = [_colored(one, index) for index, one in enumerate(one for one in drawn if one.points)]
    main = [one for one in drawn if not one.thin]
    names = [_key(one) for one in main] if len(main) > 1 else []
    notes = [f"<span>{escape(note)}</span>"] if note else []
    caption = f"<figcaption><b>{escape(title)}</b>{''.join(names + notes)}</figcaption>"
    if not drawn:
        return f'<figure class="chart">{caption}<p class="empty">No data yet.</p></figure>'
    points = [point for one in drawn for point in one.points]
    x_values = [point.x for point in points] + ([0.0] if scale == "from zero" else [])
    y_values = [value for point in points for value in (point.y, point.low, point.high) if value is not None]
    if scale == "log":
        x_axis, y_axis = _log_axis(x_values, LEFT, width - RIGHT, 4), _log_axis(y_values, height - BOTTOM, TOP, 10)
    else:
        x_axis = _step_axis(x_values, LEFT, width - RIGHT, max_ticks=max(5, width // 90))
        y_axis = value_axis(y_values, height - BOTTOM, TOP, max_ticks=max(5, height // 50))
    parts = [
        *frame(x_axis, y_axis, x_label, y_label),
        *(part for one in sorted(drawn, key=lambda one: not one.thin) for part in _curve(one, x_axis, y_axis)),
        *_spots(main, x_axis, y_axis, x_name),
    ]
    return (
        f'<figure class="chart">{caption}<svg viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>{_numbers(main, x_name)}</figure>'
    )


def _colored(series: Series, index: int) -> Series:
    return replace(series, color=(index if series.color is None else series.color) % COLORS)


def _key(series: Series) -> str:
    return f'<span class="key s{series.color}{" dashed" if series.dashed else ""}">{escape(series.name)}</span>'


def _numbers(series: Sequence[Series], x_name: str) -> str:
    """The table of a chart: a row for each place on the axis, a column for each curve."""
    places = sorted({point.x for one in series for point in one.points})
    columns = [{point.x: _value(point) for point in one.points} for one in series]
    rows = ([format_number(x), *(column.get(x, "") for column in columns)] for x in places)
    return data_table([x_name, *(one.name for one in series)], rows)


def nice_ticks(low: float, high: float, count: int) -> tuple[float, ...]:
    """Round numbers (1, 2 or 5 times a power of ten) that enclose low..high, about `count` of them."""
    rough = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= 0.7 * rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return tuple(index * step for index in range(first, last + 1))


def format_ticks(ticks: Sequence[float]) -> list[str]:
    """One unit and one number of decimals for a whole axis: 0, 10k, 20k or 0.000, 0.005, 0.010."""
    largest = max(abs(tick) for tick in ticks)
    step = ticks[1] - ticks[0] if len(ticks) > 1 else largest
    if largest >= 1e12 or 0 < largest < 1e-3:
        return [_minus(f"{tick:.3g}") for tick in ticks]
    scale, unit = next((scale, unit) for minimum, scale, unit in UNITS if largest >= minimum)
    decimals = max(0, -math.floor(math.log10(step / scale) + 1e-9)) if step else 0
    return ["0" if tick == 0 else _minus(f"{tick / scale:,.{decimals}f}{unit}") for tick in ticks]


def format_number(value: float) -> str:
    """A number as text: whole numbers in full, others with four significant digits."""
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e12:
        return _minus(f"{int(value):,}")
    if 1e-3 <= abs(value) < 1e6:
        decimals = max(0, 3 - math.floor(math.log10(abs(value))))
        return _minus(f"{value:,.{min(decimals, 4)}f}")
    return _minus(f"{value:.3g}")


def format_column(values: Sequence[float | None]) -> list[str]:
    """Numbers of one column as text: the same number of decimals for all, chosen for the largest."""
    numbers = [value for value in values if value is not None]
    largest = max(map(abs, numbers), default=0.0)
    if all(value == int(value) for value in numbers) or not 1e-3 <= largest < 1e6:
        return ["–" if value is None else format_number(value) for value in values]
    decimals = min(4, max(0, 3 - math.floor(math.log10(largest))))
    return ["–" if value is None else _minus(f"{value:,.{decimals}f}") for value in values]


def _minus(text: str) -> str:
    return text.replace("-", "\N{MINUS SIGN}") if text.startswith("-") else text


def _drawable(points: Sequence[Point]) -> list[Point]:
    def usable(value: float | None) -> bool:
        return value is None or (math.isfinite(value) and abs(value) < MAX_DRAWN)

    kept = [point for point in points if all(map(usable, (point.x, point.y, point.low, point.high)))]
    return sorted(kept, key=lambda point: point.x)


def _step_axis(values: Sequence[float], start: float, end: float, max_ticks: int) -> Axis:
    """An axis from the first value to the last, with ticks in between."""
    low = min(values)
    high = max(values) if max(values) > low else low + 1
    slack = 1e-9 * (high - low)
    ticks = tuple(tick for tick in nice_ticks(low, high, max_ticks) if low - slack <= tick <= high + slack)
    return Axis(low, high, start, end, ticks)


def _log_axis(values: Sequence[float], start: float, end: float, base: int) -> Axis:
    """A logarithmic axis between powers of the base that enclose the values."""
    low, high = math.floor(math.log(min(values), base) + 1e-9), math.ceil(math.log(max(values), base) - 1e-9)
    ticks = tuple(float(base) ** power for power in range(low, max(high, low + 1) + 1))
    return Axis(ticks[0], ticks[-1], start, end, ticks, log=True)


def value_axis(values: Sequence[float], start: float, end: float, max_ticks: int) -> Axis:
    """An axis of values, between round numbers."""
    low, high = min(values), max(values)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, MIN_RANGE):
        padding = 0.1 * largest if largest > MIN_RANGE else 1.0
        low, high = low - padding, high + padding
    ticks = nice_ticks(low, high, max_ticks)
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def frame(x_axis: Axis, y_axis: Axis, x_label: str, y_label: str) -> Iterator[str]:
    """The grid, the axes and their labels."""
    left, right, bottom = x_axis.start, x_axis.end, y_axis.start
    for tick, label in zip(y_axis.ticks, y_axis.labels(), strict=True):
        y = y_axis(tick)
        yield f'<line class="grid" x1="{left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{left - 8:g}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    yield f'<line class="axis" x1="{left:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}"/>'
    for tick, label in zip(x_axis.ticks, x_axis.labels(), strict=True):
        x = x_axis(tick)
        yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:g}" y2="{bottom + 4:g}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 17:g}" text-anchor="middle">{label}</text>'
    yield f'<text x="{right:g}" y="{bottom + 33:g}" text-anchor="end">{escape(x_label)}</text>'
    yield f'<text x="0" y="{y_axis.end - 14:g}">{escape(y_label)}</text>'


def _curve(series: Series, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    yield f'<g class="s{series.color}">'
    upper = [(point.x, point.high) for point in series.points if point.low is not None and point.high is not None]
    lower = [(point.x, point.low) for point in series.points if point.low is not None and point.high is not None]
    if len(upper) > 1:
        outline = " ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in upper + lower[::-1] if y is not None)
        yield f'<polygon class="band" points="{outline}"/>'
    places = [f"{x_axis(point.x):.1f},{y_axis(point.y):.1f}" for point in series.points]
    kind = "line" + (" thin" if series.thin else "") + (" dashed" if series.dashed else "")
    yield f'<polyline class="{kind}" points="{" ".join(places)}"/>'
    if series.markers or (len(places) == 1 and not series.thin):
        for place in places:
            x, y = place.split(",")
            yield f'<circle class="dot" cx="{x}" cy="{y}" r="{4 if len(places) < 40 else 2.5}"/>'
    yield "</g>"


def _spots(series: Sequence[Series], x_axis: Axis, y_axis: Axis, x_name: str) -> Iterator[str]:
    """Invisible columns, each reaching halfway to its neighbours, that show a guide and the values on hover."""
    entries_by_x = sorted(
        ((point.x, index, point) for index, one in enumerate(series) for point in one.points),
        key=lambda entry: entry[:2],
    )
    columns = [(x, list(entries)) for x, entries in groupby(entries_by_x, key=lambda entry: entry[0])]
    places = [x_axis(x) for x, _ in columns]
    edges = [x_axis.start - 6, *((a + b) / 2 for a, b in pairwise(places)), x_axis.end + 6]
    for (x, entries), place, (left, right) in zip(columns, places, pairwise(edges), strict=True):
        lines = [f"{x_name} {format_number(x)}", *(_describe(series[i].name, point) for _, i, point in entries)]
        dots = (
            f'<circle class="dot s{series[i].color}" cx="{place:.1f}" cy="{y_axis(point.y):.1f}" r="4.5"/>'
            for _, i, point in entries
        )
        yield (
            f'<g class="spot"><rect x="{left:.1f}" y="{TOP:g}" width="{max(right - left, 0):.1f}" '
            f'height="{y_axis.start - TOP:g}"/>'
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{TOP:g}" y2="{y_axis.start:g}"/>{"".join(dots)}'
            f"<title>{escape(chr(10).join(lines))}</title></g>"
        )


def _describe(name: str, point: Point) -> str:
    return f"{name}: {_value(point)}"


def _value(point: Point) -> str:
    """The value of a point, and its band: `119.2  (110 to 150)`."""
    spread = ""
    if point.low is not None and point.high is not None and point.low != point.high:
        spread = f"  ({format_number(point.low)} to {format_number(point.high)})"
    return f"{format_number(point.y)}{spread}"
