"""The report's charts: returns, and every training metric that changes."""

from __future__ import annotations

import base64
import math
from html import escape

from rl_training.report.charts import Point, Series, format_number, line_chart
from rl_training.report.run_data import Run, curve_points, episode_returns, metric_values

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
    """Evaluations, training episodes and the video; a run on a dataset alone has no training episodes."""
    many = len(run.seeds) > 1
    points = curve_points(run.evaluations, episode_returns, many)
    training = _metric_points(run, TRAINING_RETURN)
    parts = []
    if points or not run.dataset:
        evaluation = line_chart(
            [Series("return", points, markers=True)],
            "Evaluation return",
            run.x_label,
            "return",
            note=f"mean over {'seeds' if many else 'episodes'}, band from lowest to highest" if points else "",
            x_name=run.unit.removesuffix("s"),
            width=990,
            height=330,
        )
        parts.append(f'<div class="card scroll">{evaluation}</div>')
    cards = []
    if training or not run.dataset:
        width = 470 if run.video else 990
        cards.append(f'<div class="card">{_metric_chart(run, TRAINING_RETURN, training, width, 310)}</div>')
    if run.video is not None:
        cards.append(_video(run.video))
    if cards:
        parts.append(f'<div class="row">{"".join(cards)}</div>')
    return f"<h2>Returns</h2>{''.join(parts)}" if parts else ""


def _metric_points(run: Run, name: str) -> list[Point]:
    return curve_points(run.metrics, metric_values(name), len(run.seeds) > 1)


def _is_constant(points: list[Point]) -> bool:
    return len(points) > 1 and len({value for point in points for value in (point.low, point.y, point.high)}) == 1


def _metric_chart(run: Run, name: str, points: list[Point], width: int, height: int) -> str:
    broken = sum(isinstance(value := row.get(name), float) and not math.isfinite(value) for row in run.metrics)
    note = f"{broken} values not finite" if broken else ""
    title, unit = _title(name), run.unit
    return line_chart(
        [Series(title, points)], title, unit, name, note=note, x_name=unit.removesuffix("s"), width=width, height=height
    )


def _title(name: str) -> str:
    if name in METRIC_TITLES:
        return METRIC_TITLES[name]
    words = [word.upper() if word in ABBREVIATIONS else word for word in name.split("/", 1)[1].split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _video(video: bytes) -> str:
    data = base64.b64encode(video).decode("ascii")
    return (
        '<div class="card chart"><b>Trained policy</b><video controls autoplay loop muted playsinline '
        f'src="data:video/webm;base64,{data}"></video></div>'
    )
