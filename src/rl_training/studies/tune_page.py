"""The report of a tuning study: values by trial, the importance of settings, and the table of trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rl_training.report.charts import Point, Series, format_number, line_chart
from rl_training.report.html import card, page, table
from rl_training.report.page import replace_page

COMPLETE = "complete"
Row = Mapping[str, Any]


def write_tune_page(output: Path, title: str, rows: Sequence[Row], importance: Mapping[str, float]) -> None:
    """Write the page; `rows` are the trials as in trials.csv."""
    replace_page(output, tune_page(title, rows, importance))


def tune_page(title: str, rows: Sequence[Row], importance: Mapping[str, float]) -> str:
    """The page as HTML."""
    done = [row for row in rows if row["state"] == COMPLETE]
    counts = f"{len(rows)} trials, {len(done)} complete, {sum(row['state'] == 'pruned' for row in rows)} pruned"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="about">{escape(counts)}</p>']
    values = [Point(row["trial"], row["value"]) for row in done]
    series = [Series("value", values, markers=True), Series("best so far", list(_best_so_far(done)), dashed=True)]
    chart = line_chart(series, "Value by trial", "trial", "objective", x_name="trial", size=(990, 320))
    parts.append(card(chart, "scroll spaced"))
    if importance:
        parts.append(card(_importance(importance), "spaced"))
    columns = list(rows[0]) if rows else ["trial"]
    ranked = sorted(rows, key=lambda row: (row["state"] != COMPLETE, -(row["value"] or 0.0), row["trial"]))
    cells = [[_cell(row.get(name)) for name in columns] for row in ranked]
    parts += ["<h2>Trials, best first</h2>", card(table(columns, cells))]
    return page(title, "\n".join(parts))


def _best_so_far(done: Sequence[Row]) -> Iterator[Point]:
    best = float("-inf")
    for row in done:
        best = max(best, row["value"])
        yield Point(row["trial"], best)


def _importance(importance: Mapping[str, float]) -> str:
    """How much each setting decides about the value, as bars with their numbers."""
    largest = max(importance.values()) or 1.0
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td><meter min="0" max="{largest:.6f}" value="{value:.6f}">'
        f"{value:.2f}</meter></td><td>{value:.2f}</td></tr>"
        for name, value in importance.items()
    )
    head = '<tr><th scope="col">setting</th><th scope="col">share</th><th scope="col">importance</th></tr>'
    return f'<b>Importance of settings</b><table class="cells bars"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return format_number(value) if isinstance(value, float) else str(value)
