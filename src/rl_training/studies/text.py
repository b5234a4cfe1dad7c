"""A comparison as text: tables of rich on a terminal, aligned columns when piped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rl_training.report.charts import format_number
from rl_training.studies.tables import SCORES, Comparison, Estimate, Improvement, TaskTable

SCORE_TITLES = {"final": "final", "best": "best", "area": "area under curve"}
Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]  # title, head, rows


def estimate_text(one: Estimate | None) -> str:
    """`412.3 [390.1, 430.9]`, or `412.3 (mean)` where there is no interval."""
    if one is None:
        return "–"
    if one.low is None or one.high is None:
        return f"{format_number(one.value)} (mean)"
    return f"{format_number(one.value)} [{format_number(one.low)}, {format_number(one.high)}]"


def improvement_text(one: Improvement) -> str:
    """`0.83 [0.61, 0.97]`, without brackets where there is no interval."""
    interval = "" if one.low is None or one.high is None else f" [{one.low:.2f}, {one.high:.2f}]"
    return f"{one.probability:.2f}{interval}"


def variant_columns(table: TaskTable) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of a task's table."""
    gap = any(row.optimality_gap is not None for row in table.variants)
    head = ["algorithm", "seeds", "steps", *(SCORE_TITLES[kind] for kind in SCORES[:1]), "median"]
    head += [*(SCORE_TITLES[kind] for kind in SCORES[1:]), *(["optimality gap"] if gap else [])]
    rows = []
    for row in table.variants:
        cells = [row.name, str(len(row.seeds)), f"{row.steps:,}", estimate_text(row.final), format_number(row.median)]
        cells += [estimate_text(row.best), estimate_text(row.area)]
        rows.append(cells + ([estimate_text(row.optimality_gap)] if gap else []))
    return head, rows


def improvement_columns(table: TaskTable) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the probabilities of improvement."""
    head = ["algorithm", "better than", "probability"]
    return head, [[one.first, one.second, improvement_text(one)] for one in table.improvements]


def tables_of(comparison: Comparison) -> Iterator[Table]:
    """All tables of a comparison."""
    for table in (*comparison.tasks, *([comparison.across] if comparison.across else [])):
        scale = " (normalised)" if table is comparison.across else ""
        yield f"{table.task}: {comparison.metric}{scale}", *variant_columns(table)
        if table.improvements:
            title = f"{table.task}: probability that a run is the better one ({SCORE_TITLES[comparison.score]})"
            yield title, *improvement_columns(table)


def legend(comparison: Comparison) -> str:
    """What the numbers are, in one line."""
    variants = [row for table in comparison.tasks for row in table.variants]
    few = any(len(row.seeds) < 4 for row in variants)
    text = "interquartile mean over seeds [95 % stratified-bootstrap interval]"
    return text + ("; (mean): fewer than four seeds, a mean without an interval" if few else "")


def plain_text(comparison: Comparison) -> str:
    """Aligned columns, for files and pipes."""
    blocks = []
    for title, head, rows in tables_of(comparison):
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
        blocks.append("\n".join([title, *(f"  {line.rstrip()}" for line in lines)]))
    return "\n\n".join([*blocks, legend(comparison)])


def print_rich(comparison: Comparison) -> None:
    """Tables on a terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    for title, head, rows in tables_of(comparison):
        numbers = sum(max(len(row[i]) for row in (head, *rows)) + 3 for i in range(1, len(head)))
        whole = numbers + 20 <= console.width  # else numbers are wrapped too
        table = RichTable(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
        for i, name in enumerate(head):
            table.add_column(
                Text(name), justify="right" if i and len(head) > 3 else "left", overflow="fold", no_wrap=i > 0 and whole
            )
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
    console.print(Text(legend(comparison), style="dim"))
