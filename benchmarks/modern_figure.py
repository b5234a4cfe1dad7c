"""Return against environment steps and against seconds, for SAC, TQC, REDQ, DroQ, CrossQ, SimBa and FlashSAC.

python benchmarks/modern_figure.py [--results benchmarks/results] [--page docs/results.md]
From the result files of `proofs.modern_proofs` that are there: writes modern-curves.svg beside them and the table
between two comments of the page, with what was not run. Published values are dashed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from learn import by_step
from proofs import CURVES, proof_name

from rl_training.core.statistics import summarize, uses_iqm
from rl_training.report.chart_style import CHART_CSS
from rl_training.report.charts import Point, Series, line_chart

NAMES = {
    "sac": "SAC", "tqc": "TQC", "redq": "REDQ", "droq": "DroQ", "crossq": "CrossQ", "simba": "SAC with simba",
    "flashsac": "FlashSAC",
}  # fmt: skip
TASKS = {"halfcheetah": ("HalfCheetah-v4", 100_000), "humanoid": ("Humanoid-v4", 200_000)}
# Further points of the published curves up to the step of the proof.
EARLIER = {
    ("sac", "humanoid"): {100_000: 632.0},
    ("crossq", "humanoid"): {100_000: 3669.0},
    ("flashsac", "humanoid"): {100_000: 6138.0},
    ("tqc", "halfcheetah"): {10_000: -1.0, 20_000: 10.0, 50_000: 1752.0},
    ("tqc", "humanoid"): {10_000: 97.0, 20_000: 159.0, 50_000: 420.0, 100_000: 572.0},
}
COLOURS = ("#475467", "#0e7490", "#7c3aed", "#be185d", "#d97706", "#15803d", "#2563eb")
BEGIN = "<!-- Written by benchmarks/modern_figure.py from benchmarks/results -->"
END = "<!-- End of what benchmarks/modern_figure.py writes -->"
FIGURE = "modern-curves.svg"
PANEL = (560, 330)
Results = dict[tuple[str, str], dict[str, Any]]  # by method and task


def methods_of(task: str) -> list[str]:
    """The methods that are compared on a task."""
    return [method for method, values in CURVES.items() if values[task == "humanoid"] is not None]


def read_results(folder: Path) -> Results:
    found: Results = {}
    for task in TASKS:
        for method in methods_of(task):
            path = folder / f"{proof_name(method, task)}.json"
            if path.exists():
                found[method, task] = json.loads(path.read_text())
    return found


def published_points(method: str, task: str) -> dict[int, float]:
    value = CURVES[method][task == "humanoid"]
    assert value is not None
    return {**EARLIER.get((method, task), {}), TASKS[task][1]: float(value.replace(",", ""))}


# --- figure ----------------------------------------------------------------------------------------------------------
def curve(result: dict[str, Any], by_seconds: bool) -> list[Point]:
    """The interquartile mean over seeds with its interval at each evaluation, by steps or by the seconds until then."""
    times = {row["step"]: row.get("seconds") for row in result["curve"]}
    points = []
    for step, values in by_step(result["curve"]).items():
        summary = summarize(values)
        band = summary["interval"] if uses_iqm(summary["n"]) else (None, None)
        if not by_seconds or times[step] is not None:
            points.append(Point(times[step] if by_seconds else step, summary["iqm"], *band))
    return points


def panel(results: Results, task: str, by_seconds: bool) -> str:
    """One chart as a nested SVG; without data, its title and a remark."""
    series = []
    for method in methods_of(task):
        color = list(NAMES).index(method)
        if (method, task) in results:
            points = curve(results[method, task], by_seconds)
            series.append(Series(NAMES[method], points, markers=True, color=color))
        if not by_seconds:
            points = [Point(step, value) for step, value in published_points(method, task).items()]
            if len(points) == 1:  # a level towards its step
                points.insert(0, Point(0.85 * points[0].x, points[0].y))
            series.append(Series(f"{NAMES[method]}, published", points, dashed=True, color=color))
    title = f"{TASKS[task][0]}, return against {'seconds' if by_seconds else 'environment steps (published: dashed)'}"
    chart = line_chart(series, title, "seconds" if by_seconds else "environment steps", "return", size=PANEL)
    if "<svg" not in chart:
        return f'<text class="title" x="0" y="-14">{title}</text><text x="50" y="40">not run</text>'
    return f'<text class="title" x="0" y="-14">{title}</text>' + chart[chart.index("<svg") : chart.index("</svg>") + 6]


def figure(results: Results) -> str:
    """Four charts and a legend as one SVG."""
    width, height = PANEL
    parts = []
    for number, name in enumerate(NAMES.values()):
        x = 20 + 150 * number
        parts.append(f'<g class="s{number}"><rect class="bar" x="{x}" y="12" width="16" height="4"/></g>')
        parts.append(f'<text x="{x + 22}" y="18">{name}</text>')
    for row, task in enumerate(TASKS):
        for column in (0, 1):
            place = f"translate({20 + column * (width + 40)} {70 + row * (height + 50)})"
            svg = panel(results, task, column == 1).replace("<svg ", f'<svg width="{width}" height="{height}" ', 1)
            parts.append(f'<g transform="{place}">{svg}</g>')
    colours = "".join(f".s{number} {{ --line: {colour}; }}" for number, colour in enumerate(COLOURS))
    style = f"{CHART_CSS}{colours}.title {{ font-weight: 600; }}"
    variables = "--grid:#e3e6eb;--axis:#98a2b3;--muted:#475467;--card:#fff"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {2 * width + 80} {2 * height + 160}" '
        f'style="background:#fff;font-family:sans-serif;{variables}"><style>{style}</style>{"".join(parts)}</svg>\n'
    )


# --- table -----------------------------------------------------------------------------------------------------------
def cells(results: Results, method: str, task: str) -> list[str]:
    """Ours, the published value, and the time of the run, of one method on one task."""
    if method not in methods_of(task):
        return ["–", "–", "–"]
    published = str(CURVES[method][task == "humanoid"])
    result = results.get((method, task))
    if result is None:
        return ["not run", published, "–"]
    summary = result["summary"]["final"]
    low, high = summary["interval"]
    band = f"[{low:,.0f}, {high:,.0f}]" if uses_iqm(summary["n"]) else "mean"
    link = f"[{summary['iqm']:,.0f}](../benchmarks/results/{result['name']}.json) {band}, {summary['n']} seeds"
    return [link, published, f"{result['train_seconds']:,.0f} s"]


def section(results: Results) -> str:
    """The table of both tasks, the figure, and what was not run."""
    head = ["method"]
    for task, steps in TASKS.values():
        head += [f"{task}, {steps // 1000}k", "published", "time"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for method, name in NAMES.items():
        row = [name, *(cell for task in TASKS for cell in cells(results, method, task))]
        lines.append(f"| {' | '.join(row)} |")
    compared = [(method, task) for task in TASKS for method in methods_of(task)]
    missing = [proof_name(*one) for one in compared if one not in results]
    lines += ["", f"![Return against steps and seconds](../benchmarks/results/{FIGURE})", ""]
    lines.append(f"Not run: {', '.join(missing)}." if missing else "All of them were run.")
    return "\n".join(lines)


def written_page(text: str, results: Results) -> str:
    """The page with a new section between its two comments."""
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"the page must have the lines {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{section(results)}\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--page", type=Path, default=Path("docs/results.md"))
    args = parser.parse_args()
    results = read_results(args.results)
    (args.results / FIGURE).write_text(figure(results))
    args.page.write_text(written_page(args.page.read_text(), results))


if __name__ == "__main__":
    main()
