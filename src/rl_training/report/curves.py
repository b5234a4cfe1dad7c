"""The report's charts: returns, and every training metric that changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape

from rl_training.core.statistics import uses_iqm
from rl_training.report.charts import Point, Series, format_number, line_chart
from rl_training.report.histogram import histogram
from rl_training.report.html import card, video_card
from rl_training.report.run_data import (
    Row,
    Run,
    Values,
    curve_points,
    episode_returns,
    interval_points,
    mean_of,
    metric_values,
    seed_points,
)

MAX_SEED_LINES = 64
MAX_VIDEO_BYTES = 3_000_000  # of all videos of a run: 4 MB of its page
TRAINING_RETURN = "rollout/ep_rew_mean"
METRIC_TITLES = {TRAINING_RETURN: "Training return", "rollout/ep_len_mean": "Episode length"}
ABBREVIATIONS = {"q", "td", "kl", "bc", "cql"}
COUNTERS = {"train/n_updates"}  # a straight line; the last value is a headline number
SCHEDULED = {"train/learning_rate", "rollout/exploration_rate"}  # set by the config


def curves(run: Run) -> str:
    """The HTML of all charts, and a line with the metrics that are constant."""
    names = dict.fromkeys(name for row in run.metrics for name in row)
    others = [name for name in names if name.startswith("rollout/") and name != TRAINING_RETURN]
    others += [name for name in names if name.startswith("train/")]
    drawn = {name: points for name in others if name not in COUNTERS and (points := _metric_points(run, name))}
    constant = {name: points[0].y for name, points in drawn.items() if _is_constant(points)}
    charts = []
    for name, points in drawn.items():
        if name not in constant and not (name in SCHEDULED and len(points) == 1):
            charts.append(f'<div class="card">{_metric_chart(run, name, points, 300, 210)}</div>')
    facts = [f"{_title(name)} {format_number(value)}" for name, value in constant.items() if name not in SCHEDULED]
    parts = [
        _returns(run),
        f'<h2>Training</h2><div class="row multiples">{"".join(charts)}</div>' if charts else "",
        f'<p class="about constant">Constant throughout: {escape(", ".join(facts))}</p>' if facts else "",
    ]
    return "".join(parts)


def _returns(run: Run) -> str:
    """Evaluations, videos, training episodes and the distribution; a run on a dataset alone has no such episodes."""
    parts = []
    if run.evaluations or not run.dataset:
        parts.append(card(_return_chart(run, run.evaluations, episode_returns, "Evaluation return", 990), "scroll"))
    titles = ("Best agent" if run.last_video else "Trained policy", "Last agent")
    videos, left_out = fitting_videos(dict(zip(titles, (run.video, run.last_video), strict=True)))
    cards = [video_card(title, video) for title, video in videos.items()]
    if any(metric_values(TRAINING_RETURN)(row) for row in run.metrics) or not run.dataset:
        width = 990 if not run.evaluations else 470
        values = metric_values(TRAINING_RETURN)
        cards.append(card(_return_chart(run, run.metrics, values, METRIC_TITLES[TRAINING_RETURN], width)))
    if run.evaluations:
        cards.append(card(_distribution(run)))
    if cards:
        parts.append(f'<div class="row">{"".join(cards)}</div>')
    if left_out:
        parts.append(f'<p class="about constant">Too large for this page: {escape(", ".join(left_out))}</p>')
    return f"<h2>Returns</h2>{''.join(parts)}" if parts else ""


def fitting_videos(
    videos: Mapping[str, bytes | None], budget: int = MAX_VIDEO_BYTES
) -> tuple[dict[str, bytes], list[str]]:
    """The videos that fit into a page, in their order, and a line for each of the others."""
    kept, left_out = dict[str, bytes](), list[str]()
    for title, video in videos.items():
        if video is None:
            continue
        if len(video) <= budget:
            kept[title], budget = video, budget - len(video)
        else:
            left_out.append(f"{title} ({len(video) / 1e6:.1f} MB)")
    return kept, left_out


def _return_chart(run: Run, rows: Sequence[Row], values_of: Values, title: str, width: int) -> str:
    """Returns over steps: of several seeds the interquartile mean with its interval, and a thin line for each."""
    name = "return" if rows is run.evaluations else title
    if len(run.seeds) < 2:
        points = curve_points(rows, values_of, False)
        series = [Series(name, points, markers=rows is run.evaluations)]
        note = "mean over episodes, band from lowest to highest" if points and rows is run.evaluations else ""
    else:
        points = interval_points(rows, values_of)
        series = [Series(name, points, markers=rows is run.evaluations)]
        lines = list(seed_points(rows, values_of).items())[:MAX_SEED_LINES]
        series += [Series(f"seed {seed}", one, thin=True) for seed, one in lines]
        statistic = "interquartile mean and its 95 % interval" if uses_iqm(len(run.seeds)) else "mean"
        each = "each seed" if len(run.seeds) <= MAX_SEED_LINES else f"the first {MAX_SEED_LINES} seeds"
        note = f"{statistic}; thin: {each}" if points else ""
    broken = _broken(rows, TRAINING_RETURN) if rows is run.metrics else ""
    return line_chart(
        [replace(one, color=0) for one in series],
        title,
        run.x_label,
        "return",
        note=broken or note,
        x_name=run.unit.removesuffix("s"),
        size=(width, 330 if width > 600 else 260),
    )


def _distribution(run: Run) -> str:
    """The returns of all episodes of each seed's last evaluation, and of its best one."""
    last: dict[int, list[float]] = {}
    best: dict[int, list[float]] = {}
    for row in run.evaluations:
        seed, returns = row["seed"], episode_returns(row)
        last[seed] = returns
        if seed not in best or mean_of(returns) > mean_of(best[seed]):
            best[seed] = returns
    groups = {
        "last evaluation": [value for returns in last.values() for value in returns],
        "best evaluation": [value for returns in best.values() for value in returns],
    }
    return histogram(groups, "Distribution of returns", "return", "episodes of all seeds" if len(last) > 1 else "")


def _metric_points(run: Run, name: str) -> list[Point]:
    return curve_points(run.metrics, metric_values(name), len(run.seeds) > 1)


def _is_constant(points: list[Point]) -> bool:
    return len(points) > 1 and len({value for point in points for value in (point.low, point.y, point.high)}) == 1


def _metric_chart(run: Run, name: str, points: list[Point], width: int, height: int) -> str:
    note = _broken(run.metrics, name)
    title, unit = _title(name), run.unit
    return line_chart(
        [Series(title, points)], title, unit, name, note=note, x_name=unit.removesuffix("s"), size=(width, height)
    )


def _broken(rows: Sequence[Row], name: str) -> str:
    broken = sum(isinstance(value := row.get(name), float) and not math.isfinite(value) for row in rows)
    return f"{broken} values not finite" if broken else ""


def _title(name: str) -> str:
    if name in METRIC_TITLES:
        return METRIC_TITLES[name]
    words = [word.upper() if word in ABBREVIATIONS else word for word in name.split("/", 1)[1].split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])
