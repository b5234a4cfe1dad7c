"""One self-contained HTML page that tells how a run went; opens offline and works on unfinished runs."""

from __future__ import annotations

import base64
import math
import shlex
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError
from rl_training.core.statistics import summarize
from rl_training.experiment.charts import CHART_CSS, Series, format_column, format_number, line_chart
from rl_training.experiment.report_data import (
    Row,
    Run,
    as_mapping,
    as_number,
    curve_points,
    episode_returns,
    final_returns,
    load_run,
    mean_of,
    std_of,
    wall_seconds,
)

STATUS_WORDS = {"running": "Running", "finished": "Finished", "stopped": "Stopped", "failed": "Failed"}
METRIC_TITLES = {"rollout/ep_rew_mean": "Training return", "rollout/ep_len_mean": "Episode length"}

PAGE_CSS = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #fff; --text: #1b2230; --muted: #667085; --edge: #e3e6eb;
  --grid: #edeff3; --axis: #b8bfca; --accent: #2f6fdb; --accent-2: #c2571b; --good: #1a7f4b; --warn: #9a6700;
  --bad: #c2303b; }
@media (prefers-color-scheme: dark) { :root { --page: #11151c; --card: #191f29; --text: #e4e8ef; --muted: #95a0b2;
  --edge: #2a3240; --grid: #252d3a; --axis: #4c586b; --accent: #6ea6ff; --accent-2: #f09a5f; --good: #4cc38a;
  --warn: #e0b03c; --bad: #ff7a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 14px; margin: 0; font-size: 28px; line-height: 1.2;
  font-weight: 650; letter-spacing: -.015em; overflow-wrap: anywhere; }
h2 { margin: 40px 0 14px; font-size: 17px; font-weight: 650; letter-spacing: -.005em; }
.about { margin: 6px 0 24px; color: var(--muted); }
.status { padding: 3px 11px; border-radius: 99px; font-size: 13px; font-weight: 600; letter-spacing: 0;
  color: var(--tone); background: color-mix(in srgb, var(--tone) 13%, transparent); }
.finished { --tone: var(--good); } .running { --tone: var(--accent); } .stopped { --tone: var(--warn); }
.failed { --tone: var(--bad); } .unknown { --tone: var(--muted); }
.card { background: var(--card); border: 1px solid var(--edge); border-radius: 12px; padding: 18px 20px; min-width: 0; }
.callout { margin: 0 0 16px; padding: 12px 18px; border-left: 4px solid var(--tone); border-radius: 6px 12px 12px 6px;
  overflow-wrap: anywhere; }
.tiles { display: grid; gap: 1px; margin: 0; padding: 0; overflow: hidden;
  grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); }
.tiles.six { grid-template-columns: repeat(auto-fit, minmax(min(100%, 300px), 1fr)); }
.tile { padding: 16px 20px; box-shadow: 0 0 0 1px var(--edge); }
.tile dt { color: var(--muted); font-size: 13px; } .tile dd { margin: 0; }
.tile .value { font-size: 24px; line-height: 1.3; font-weight: 600; letter-spacing: -.01em;
  font-variant-numeric: tabular-nums; }
.tile small { color: var(--muted); font-size: 16px; font-weight: 500; white-space: nowrap; }
.tile .detail { min-height: 1.5em; color: var(--muted); font-size: 12.5px; }
.row { display: grid; gap: 16px; margin-top: 16px;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); }
.multiples { grid-template-columns: repeat(auto-fill, minmax(min(100%, 300px), 1fr)); margin-top: 0; }
.scroll { overflow-x: auto; } .scroll .chart { min-width: 720px; }
.empty { margin: 0; padding: 28px 0; text-align: center; color: var(--muted); }
video { display: block; width: 100%; max-height: 420px; margin-top: 10px; border-radius: 8px;
  border: 1px solid var(--edge); }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 14px 7px 0; text-align: left; vertical-align: top; border-top: 1px solid var(--edge); }
tr:first-child > * { border-top: 0; }
th { color: var(--muted); font-size: 13px; font-weight: 500; white-space: nowrap; }
td { overflow-wrap: anywhere; } .numbers :not(:last-child) { text-align: right; }
.numbers th, .numbers td { padding-left: 14px; }
.facts th { width: 150px; line-height: 23px; }
code, pre { font: 13px/1.6 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace; }
pre { margin: 14px 0 0; overflow-x: auto; } summary { cursor: pointer; font-weight: 600; }
details.card { margin-top: 16px; }
"""


def write_report(run_dir: Path) -> Path:
    """Write `report.html` into the run directory from whatever is there, and return its path."""
    if not run_dir.is_dir():
        raise UserError(f"no run directory at {run_dir}")
    path = run_dir / "report.html"
    unfinished = path.with_name(".report.html.part")
    unfinished.write_text(_page(load_run(run_dir)), encoding="utf-8")
    unfinished.replace(path)
    return path


def _page(run: Run) -> str:
    status = str(run.info.get("status", "unknown"))
    algo, env_id = run.info.get("algo"), run.info.get("env_id")
    title = f"{str(algo).upper()} on {env_id}" if algo and env_id else "Training run"
    tone = status if status in STATUS_WORDS else "unknown"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; media-src data:">
<style>{PAGE_CSS}{CHART_CSS}</style></head><body><main>
<h1>{escape(title)} <span class="status {tone}">{escape(STATUS_WORDS.get(status, status.capitalize()))}</span></h1>
<p class="about">{escape(_about(run))}</p>
{_callouts(run)}
{_headline(run)}
{_curves(run)}
{_seed_table(run)}
{_provenance(run)}
</main></body></html>
"""


def _about(run: Run) -> str:
    seeds = run.seeds
    parts = [f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"]
    parts += [f"{word} {moment}" for word in ("started", "ended") if (moment := _moment(run.info.get(word)))]
    return " · ".join(parts)


def _moment(value: Any) -> str:
    try:
        return datetime.fromisoformat(str(value).replace("Z", "+00:00")).strftime("%Y-%m-%d %H:%M %Z").strip()
    except ValueError:
        return "" if value is None else str(value)


def _callouts(run: Run) -> str:
    messages = []
    if run.info.get("resume") == "inexact":
        note = run.info.get("resume_note") or "a resumed run may differ from one that never stopped"
        messages.append(("stopped", "Resume is not exact", str(note)))
    for seed, details in run.failed_seeds.items():
        text = ", ".join(f"{key}: {value}" for key, value in details.items()) if isinstance(details, dict) else details
        messages.append(("failed", f"Seed {seed} failed", str(text)))
    return "".join(
        f'<p class="card callout {tone}"><b>{escape(head)}.</b> {escape(text)}</p>' for tone, head, text in messages
    )


def _headline(run: Run) -> str:
    finals, many = final_returns(run), len(run.seeds) > 1
    mean, std = run.final_metric("eval_return_mean"), run.final_metric("eval_return_std")
    detail, tiles = "", []
    if many and finals:
        across = summarize(list(finals.values()))
        mean, std, detail = across["mean"], across["std"], f"mean and spread over {across['n']} seeds"
        low, high = map(format_number, across["interval"])
        tiles.append(
            _tile("Final evaluation, interquartile mean", across["iqm"], detail=f"95 % interval {low} to {high}")
        )
    elif run.evaluations:
        last = episode_returns(run.evaluations[-1])
        mean, std = (mean_of(last), std_of(last)) if mean is None else (mean, std)
        detail = f"over {len(last)} episodes"
    best = run.final_metric("best_eval_return_mean")
    curve = curve_points(run.evaluations, episode_returns, many)
    peak = max(curve, key=lambda point: point.y, default=None)
    rows = [*run.metrics, *run.evaluations]
    steps = run.final_metric("global_step") or max((row["step"] for row in rows), default=None)
    wall = wall_seconds(run)
    rate = f"{format_number(round(steps * len(run.seeds) / wall))} steps/s" if steps and wall else ""
    tiles += [
        _tile("Final evaluation", mean, std, detail),
        _tile(
            "Best evaluation",
            peak.y if best is None and peak else best,
            detail="highest mean return" if run.evaluations else "",
        ),
        _tile("Environment steps", steps, detail="per seed" if many else ""),
        _tile("Gradient steps", run.final_metric("gradient_steps"), detail="per seed" if many else ""),
        _tile("Wall time", _duration(wall), detail=rate + (", all seeds together" if rate and many else "")),
    ]
    return f'<dl class="card tiles{" six" if len(tiles) == 6 else ""}">{"".join(tiles)}</dl>'


def _tile(name: str, value: float | str | None, spread: float | None = None, detail: str = "") -> str:
    shown, around = (value, "") if isinstance(value, str) else format_column([value, spread])
    small = "" if spread is None else f" <small>± {around}</small>"
    return (
        f'<div class="tile"><dt>{escape(name)}</dt><dd class="value">{escape(shown)}{small}</dd>'
        f'<dd class="detail">{escape(detail)}</dd></div>'
    )


def _duration(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes} min {second:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _curves(run: Run) -> str:
    many = len(run.seeds) > 1
    note = f"mean over {'seeds' if many else 'episodes'}, band from lowest to highest" if run.evaluations else ""
    evaluation = line_chart(
        [Series("return", curve_points(run.evaluations, episode_returns, many), markers=True)],
        "Evaluation return",
        "environment steps",
        "return",
        note=note,
        width=990,
        height=330,
    )
    training = _metric_chart(run, "rollout/ep_rew_mean", width=470 if run.video else 990, height=310)
    names = dict.fromkeys(name for row in run.metrics for name in row)
    others = [name for name in names if name.startswith("rollout/") and name != "rollout/ep_rew_mean"]
    others += [name for name in names if name.startswith("train/")]
    multiples = "".join(f'<div class="card">{_metric_chart(run, name, 300, 210)}</div>' for name in others)
    parts = [
        f'<h2>Returns</h2><div class="card scroll">{evaluation}</div>',
        f'<div class="row"><div class="card">{training}</div>{_video(run.video)}</div>',
        f'<h2>Training</h2><div class="row multiples">{multiples}</div>' if multiples else "",
    ]
    return "".join(parts)


def _metric_chart(run: Run, name: str, width: int, height: int) -> str:
    def value_of(row: Row) -> list[float]:
        value = as_number(row.get(name))
        return [] if value is None else [value]

    broken = sum(isinstance(value := row.get(name), float) and not math.isfinite(value) for row in run.metrics)
    title = METRIC_TITLES.get(name) or _title(name.split("/", 1)[1])
    points = curve_points(run.metrics, value_of, len(run.seeds) > 1)
    note = f"{broken} values not finite" if broken else ""
    return line_chart([Series(title, points)], title, "steps", name, note=note, width=width, height=height)


def _title(name: str) -> str:
    words = [word.upper() if word in ("q", "td", "kl") else word for word in name.split("_")]
    return " ".join([words[0][:1].upper() + words[0][1:], *words[1:]])


def _video(video: bytes | None) -> str:
    if video is None:
        return ""
    data = base64.b64encode(video).decode("ascii")
    return (
        '<div class="card chart"><b>Trained policy</b><video controls autoplay loop muted playsinline '
        f'src="data:video/webm;base64,{data}"></video></div>'
    )


def _seed_table(run: Run) -> str:
    if len(run.seeds) < 2:
        return ""
    finals = final_returns(run)
    columns: dict[str, list[float | None]] = {
        name: [] for name in ("Final return", "Std over episodes", "Best return", "Training return", "Steps")
    }
    for seed in run.seeds:
        evaluations = [episode_returns(row) for row in run.evaluations if row["seed"] == seed]
        metrics = [row for row in run.metrics if row["seed"] == seed]
        training = [value for row in metrics if (value := as_number(row.get("rollout/ep_rew_mean"))) is not None]
        columns["Final return"].append(finals.get(seed))
        columns["Std over episodes"].append(std_of(evaluations[-1]) if seed in finals else None)
        columns["Best return"].append(max(map(mean_of, evaluations), default=None))
        columns["Training return"].append(training[-1] if training else None)
        columns["Steps"].append(metrics[-1]["step"] if metrics else None)
    lines = []
    for seed, *cells in zip(run.seeds, *map(format_column, columns.values()), strict=True):
        numbers = "".join(f"<td>{cell}</td>" for cell in (escape(str(seed)), *cells))
        state = '<span class="status failed">failed</span>' if str(seed) in run.failed_seeds else ""
        lines.append(f"<tr>{numbers}<td>{state}</td></tr>")
    head = "".join(f"<th>{name}</th>" for name in ("Seed", *columns, ""))
    table = f'<table class="numbers"><tr>{head}</tr>{"".join(lines)}</table>'
    return f'<h2>Seeds</h2><div class="card scroll">{table}</div>'


def _provenance(run: Run) -> str:
    command = run.info.get("command")
    facts = {
        "Command": shlex.join(map(str, command)) if isinstance(command, list) else command,
        "Git commit": run.info.get("git_commit"),
        "Versions": _pairs(run.info.get("versions"), " "),
        "Engine": _pairs(run.info.get("engine"), ": "),
        "Resume": " – ".join(str(run.info[key]) for key in ("resume", "resume_note") if run.info.get(key)),
    }
    lines = "".join(
        f"<tr><th>{name}</th><td><code>{escape(str(value))}</code></td></tr>" for name, value in facts.items() if value
    )
    table = f'<h2>How it was made</h2><div class="card"><table class="facts">{lines}</table></div>' if lines else ""
    config = escape(run.config)
    return table + (
        f'<details class="card"><summary>Configuration</summary><pre>{config}</pre></details>' if config else ""
    )


def _pairs(values: Any, between: str) -> str:
    return ", ".join(f"{name}{between}{value}" for name, value in as_mapping(values).items())
