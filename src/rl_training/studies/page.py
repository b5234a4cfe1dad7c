"""The page of a comparison and the report of a study: tables, charts, videos and how the runs were made."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from rl_training.config.yaml_loading import parse_yaml
from rl_training.core.checks import UserError
from rl_training.report.charts import Point, Series, format_number, line_chart
from rl_training.report.curves import fitting_videos
from rl_training.report.histogram import histogram
from rl_training.report.html import callout, card, page, table, video_card
from rl_training.report.page import STATUS_LABELS, duration, replace_page, reproduction, write_report
from rl_training.report.run_data import Run, as_mapping, load_run, pace
from rl_training.studies.collect import Collection, collect
from rl_training.studies.compare import compare
from rl_training.studies.curves import Curve
from rl_training.studies.run_curves import differences, flattened
from rl_training.studies.tables import Comparison, TaskTable
from rl_training.studies.text import SCORE_TITLES, improvement_columns, legend, variant_columns

# Fields of a config that differ between any two runs.
OWN_FIELDS = ("seed", "seeds", "output_dir", "run_name")
MAX_VIDEO_BYTES = 3_000_000  # of one video of a study


def write_page(paths: Sequence[Path | str], output: Path, refresh: float | None = None) -> list[str]:
    """Write the report of one run, or of a study of many; returns a line for each run that could not be read.

    With `refresh` runs are still training, so there may be nothing to show yet.
    """
    collection = collect(paths, allow_empty=refresh is not None)
    if len(collection.runs) == 1 and not _foreign(collection):
        write_report(collection.runs[0], output, refresh)
    else:
        replace_page(output, study_page(compare(collection), collection.runs, refresh))
    return collection.problems


def _foreign(collection: Collection) -> bool:
    return any(curve.source not in {str(run) for run in collection.runs} for curve in collection.curves)


def comparison_page(comparison: Comparison) -> str:
    """The page of a comparison alone."""
    return study_page(comparison, [])


def study_page(comparison: Comparison, run_dirs: Sequence[Path], refresh: float | None = None) -> str:
    """A page about many runs: what they reached, and how they were made."""
    runs = {path: load_run(path) for path in run_dirs}
    title = _title(comparison)
    variants = sum(len(one.variants) for one in comparison.tasks)
    tasks = "1 task" if len(comparison.tasks) == 1 else f"{len(comparison.tasks)} tasks"
    counts = f"{len(comparison.curves)} seeds in {variants} variants, {tasks}"
    about = f"{counts} · {legend(comparison)}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="about">{escape(about)}</p>']
    parts += [callout("failed", "Left out", problem) for problem in comparison.problems]
    parts += [callout("stopped", "Note", note) for note in comparison.notes]
    if comparison.across is not None:
        parts.append(_section("All tasks, normalised", comparison.across, comparison, {}))
    parts += [_section(one.task, one, comparison, runs) for one in comparison.tasks]
    parts += [_runs(runs), _differences(runs), _versions(runs), _commands(runs)]
    return page(title, "\n".join(filter(None, parts)), refresh=refresh)


def _title(comparison: Comparison) -> str:
    names = dict.fromkeys(_algorithm(row.name) for one in comparison.tasks for row in one.variants)
    tasks = [one.task for one in comparison.tasks]
    listed = ", ".join([name.upper() if name.islower() else name for name in names][:4])
    if not tasks:
        return "No results yet"
    where = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{listed}{' and more' if len(names) > 4 else ''} on {where}"


def _section(title: str, one: TaskTable, comparison: Comparison, runs: Mapping[Path, Run]) -> str:
    """One task: its table, curves, profiles, probabilities of improvement and videos."""
    colors = {name: index for index, name in enumerate(sorted(row.name for row in one.variants))}
    score = f"{SCORE_TITLES[comparison.score]} {comparison.metric}"
    parts = [f"<h2>{escape(title)}</h2>", card(table(*variant_columns(one)))]
    if any(row.curve for row in one.variants):
        parts.append(card(_curves(one, comparison, colors), "scroll spaced"))
    cards = [card(_profiles(one, score, colors))]
    scores = {row.name: row.scores for row in sorted(one.variants, key=lambda row: colors[row.name])}
    cards.append(card(histogram(scores, f"Distribution of the {score}", score, "one value per seed", unit="seeds")))
    if one.improvements:
        cards.append(card(f"<b>Probability of improvement</b>{table(*improvement_columns(one), 'cells words wrap')}"))
    found = _videos(one, comparison.curves, runs)
    videos = fitting_videos(found, MAX_VIDEO_BYTES * len(found))[0]
    cards += [video_card(name, video) for name, video in videos.items()]
    return "".join([*parts, f'<div class="row">{"".join(cards)}</div>'])


def _curves(one: TaskTable, comparison: Comparison, colors: Mapping[str, int]) -> str:
    series = []
    for row in one.variants:
        points = [Point(at.step, at.value, at.low, at.high) for at in row.curve]
        series.append(Series(row.name, points, color=colors[row.name]))
    for curve in comparison.curves:
        if curve.task == one.task:
            series.append(Series(curve.name, _thinned(curve), thin=True, color=colors[curve.name]))
    banded = any(at.low is not None for row in one.variants for at in row.curve)
    note = f"{'with 95 % intervals' if banded else 'means'}; thin: each seed"
    return line_chart(series, "Sample efficiency", "steps", comparison.metric, note=note, size=(990, 380))


def _thinned(curve: Curve, limit: int = 150) -> list[Point]:
    """At most `limit` points of a curve: some files have one for each episode."""
    every = max(1, -(-len(curve.steps) // limit))
    return [Point(float(x), float(y)) for x, y in zip(curve.steps[::every], curve.values[::every], strict=True)]


def _profiles(one: TaskTable, score: str, colors: Mapping[str, int]) -> str:
    series = []
    for profile in one.profiles:
        low, high = profile.low or [None] * len(profile.values), profile.high or [None] * len(profile.values)
        points = map(Point, one.thresholds, profile.values, low, high)
        series.append(Series(profile.name, list(points), color=colors[profile.name]))
    return line_chart(
        series, "Performance profile", score, "fraction of runs above", x_name=score, size=(470, 260), scale="from data"
    )


def _videos(one: TaskTable, curves: Iterable[Curve], runs: Mapping[Path, Run]) -> dict[str, bytes]:
    """One video for each algorithm: of its best variant that has one."""
    found: dict[str, bytes] = {}
    for curve in curves:
        run = runs.get(Path(curve.source))
        if curve.task == one.task and run is not None and run.video is not None:
            found.setdefault(curve.name, run.video)
    best: dict[str, str] = {}
    for row in one.variants:  # best first
        if row.name in found:
            best.setdefault(_algorithm(row.name), row.name)
    return {f"{name}, best agent": found[name] for name in best.values()}


def _algorithm(variant: str) -> str:
    """The name of a variant without its settings."""
    return variant.partition(" (")[0]


def _runs(runs: Mapping[Path, Run]) -> str:
    if not runs:
        return ""
    rows = []
    for path, run in runs.items():
        seconds = pace(run)[0]
        rows.append(
            [
                path.name,
                f"{run.info.get('algo')} on {run.info.get('env_id')}",
                STATUS_LABELS.get(run.status, run.status),
                str(len(run.seeds)),
                format_number(run.steps or 0),
                "" if seconds is None else duration(seconds),
                str(run.info.get("resume", "")),
                str(run.info.get("git_commit") or "")[:12],
            ]
        )
    head = ["run", "what", "status", "seeds", "steps", "time", "resume", "commit"]
    return f"<h2>Runs</h2>{card(table(head, rows, 'cells words'))}"


def _differences(runs: Mapping[Path, Run]) -> str:
    """The fields of the configs in which runs of one algorithm differ."""
    parts = []
    for algo in dict.fromkeys(str(run.info.get("algo")) for run in runs.values()):
        configs = {path.name: _config(run) for path, run in runs.items() if str(run.info.get("algo")) == algo}
        names = [name for name in differences(list(configs.values())) if name not in OWN_FIELDS]
        rows = [[name, *(_shown(config.get(name)) for config in configs.values())] for name in names]
        if rows:
            parts.append(card(table([f"{algo}: setting", *configs], rows, "cells words"), "spaced"))
    return f"<h2>Differences of the configs</h2>{''.join(parts)}" if parts else ""


def _config(run: Run) -> dict[str, object]:
    try:
        return flattened(as_mapping(parse_yaml(run.config, "config.yaml").values))
    except UserError:
        return {}


def _shown(value: object) -> str:
    return "–" if value is None else str(value)


def _versions(runs: Mapping[Path, Run]) -> str:
    """The versions that all runs share in one column; runs that differ have columns of their own."""
    if not runs:
        return ""
    kinds: dict[str, tuple[dict[str, str], list[str]]] = {}
    for path, run in runs.items():
        versions = {str(name): str(value) for name, value in as_mapping(run.info.get("versions")).items()}
        kinds.setdefault(repr(sorted(versions.items())), (versions, []))[1].append(path.name)
    columns = [("all runs" if len(kinds) == 1 else ", ".join(names), versions) for versions, names in kinds.values()]
    names = dict.fromkeys(name for _, versions in columns for name in versions)
    rows = [[name, *(versions.get(name, "–") for _, versions in columns)] for name in names]
    head = ["package", *(name for name, _ in columns)]
    return f"<h2>Versions</h2>{card(table(head, rows, 'cells words'))}" if rows else ""


def _commands(runs: Mapping[Path, Run]) -> str:
    """The commands that made the runs, and those that make them again from their configs."""
    if not runs:
        return ""
    lines = []
    for path, run in runs.items():
        command = run.info.get("command")
        made = shlex.join(map(str, command)) if isinstance(command, list) else str(command or "")
        lines += [f"# {path.name}: made by", made, *([f"# again\n{again}"] if (again := reproduction(run)) else []), ""]
    text = escape("\n".join(lines).strip())
    return f'<h2>Commands</h2><details class="card"><summary>{len(runs)} runs</summary><pre>{text}</pre></details>'
