"""The report of a run: one self-contained HTML page, also for unfinished runs."""

from __future__ import annotations

import math
import shlex
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError
from rl_training.core.statistics import summarize, uses_iqm
from rl_training.report.charts import format_column, format_number
from rl_training.report.curves import TRAINING_RETURN, curves
from rl_training.report.html import callout, page
from rl_training.report.run_data import (
    Run,
    as_mapping,
    as_number,
    best_returns,
    episode_returns,
    final_returns,
    load_run,
    mean_of,
    pace,
    std_of,
)

STATUS_LABELS = {
    "running": "Running",
    "finished": "Finished",
    "stopped": "Stopped",
    "failed": "Failed",
    "interrupted": "Interrupted",
}


def write_report(run_dir: Path, path: Path | None = None, refresh: float | None = None) -> Path:
    """Write the report of a run directory, complete or not, and return its path: by default `report.html`.

    With `refresh`, a browser loads the page again after so many seconds.
    """
    if not run_dir.is_dir():
        raise UserError(f"no run directory at {run_dir}")
    return replace_page(run_dir / "report.html" if path is None else path, _page(load_run(run_dir), refresh))


def replace_page(path: Path, text: str) -> Path:
    """Write a page under another name first: whoever has it open sees the old one or the new one."""
    unfinished = path.with_name(f".{path.name}.part")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _page(run: Run, refresh: float | None) -> str:
    algo, env_id = run.info.get("algo"), run.info.get("env_id")
    title = f"{str(algo).upper()} on {env_id}" if algo and env_id else "Training run"
    tone = run.status if run.status in STATUS_LABELS else "unknown"
    label = STATUS_LABELS.get(run.status, run.status.capitalize())
    body = f"""<h1>{escape(title)} <span class="status {tone}">{escape(label)}</span></h1>
<p class="about">{escape(_about(run))}</p>
{_callouts(run)}
{_headline(run)}
{curves(run)}
{_dataset(run)}
{_seed_table(run)}
{_provenance(run)}"""
    return page(title, body, refresh=refresh)


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
    if run.status == "failed" and run.info.get("failure"):
        messages.append(("failed", "The run failed", str(run.info["failure"])))
    if run.status == "interrupted":
        text = "its process ended without recording why; `rl-training resume` continues it"
        messages.append(("interrupted", "The run was interrupted", text))
    if run.info.get("resume") == "inexact":
        note = run.info.get("resume_note") or "a resumed run may differ from one that never stopped"
        messages.append(("stopped", "Resume is not exact", str(note)))
    for seed, details in run.failed_seeds.items():
        text = ", ".join(f"{key}: {value}" for key, value in details.items()) if isinstance(details, dict) else details
        messages.append(("failed", f"Seed {seed} failed", str(text)))
    return "".join(callout(*message) for message in messages)


def _headline(run: Run) -> str:
    tiles = "".join([*_evaluation_tiles(run), *_effort_tiles(run)])
    count = tiles.count('class="tile"')
    return f'<dl class="card tiles{" six" if count == 6 else ""}">{tiles}</dl>' if tiles else ""


def _evaluation_tiles(run: Run) -> list[str]:
    if not run.evaluations:
        return []
    finals = final_returns(run)
    tiles = []
    name, last = "Final evaluation", run.evaluations[-1]
    when = ""
    if run.status != "finished":
        name, when = "Last evaluation", f" at {run.unit.removesuffix('s')} {format_number(last['step'])}"
    if len(run.seeds) > 1 and finals:
        across = summarize(list(finals.values()))
        mean, std, detail = across["mean"], across["std"], f"mean and spread over {across['n']} seeds"
        if uses_iqm(across["n"]):
            low, high = map(format_number, across["interval"])
            tiles.append(_tile(f"{name}, interquartile mean", across["iqm"], detail=f"95 % interval {low} to {high}"))
    else:
        returns = episode_returns(last)
        mean, std, detail = mean_of(returns), std_of(returns), f"over {len(returns)} episodes"
    score = run.final_metric("eval_d4rl_score")
    detail += when + ("" if score is None else f", D4RL score {score:.1f}")
    return [
        *tiles,
        _tile(name, mean, std, detail),
        _tile("Best evaluation", mean_of(list(best_returns(run).values())), detail="highest mean return"),
    ]


def _effort_tiles(run: Run) -> list[str]:
    """Steps, updates and wall time."""
    many = len(run.seeds) > 1
    each = "per seed" if many else ""
    seconds, rate = pace(run)
    shown = f"{format_number(round(rate * len(run.seeds)))} {run.unit}/s" if rate else ""
    numbers = {"Environment steps": run.steps, "Gradient steps": run.updates}
    if run.dataset and run.steps is not None:
        online = max(0.0, run.steps - run.offline_steps)
        both = {"Environment steps": online, "Gradient steps": run.updates}
        alone = math.isinf(run.offline_steps)
        numbers = {"Updates": run.steps} if alone else {"Offline updates": run.steps - online, **both}
    tiles = [_tile(name, value, detail=each) for name, value in numbers.items() if value is not None]
    if seconds is not None:
        together = ", all seeds together" if shown and many else ""
        tiles.append(_tile("Wall time", duration(seconds), detail=shown + together))
    return tiles


def _tile(name: str, value: float | str | None, spread: float | None = None, detail: str = "") -> str:
    shown, around = (value, "") if isinstance(value, str) else format_column([value, spread])
    small = "" if spread is None else f" <small>± {around}</small>"
    return (
        f'<div class="tile"><dt>{escape(name)}</dt><dd class="value">{escape(shown)}{small}</dd>'
        f'<dd class="detail">{escape(detail)}</dd></div>'
    )


def duration(seconds: float) -> str:
    """A time for people: `2.5 s`, `3 min 05 s` or `2 h 10 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes} min {second:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _dataset(run: Run) -> str:
    data = run.dataset
    if not data:
        return ""
    rows, trajectories = (as_number(data.get(key)) for key in ("transitions", "trajectories"))
    size = "" if rows is None else format_number(rows)
    if size and trajectories is not None:
        size += f" in {format_number(trajectories)} trajectories"
    numbers = [as_number(as_mapping(data.get("returns")).get(key)) for key in ("mean", "std", "min", "max")]
    mean, std, low, high = format_column(numbers)
    facts = {
        "Recipe" if data.get("kind") in ("random", "policy") else "From": data.get("source"),
        "Transitions": size,
        "Returns": "" if None in numbers else f"{mean} ± {std}, from {low} to {high}",
        "SHA-256": data.get("sha256"),
    }
    return _facts("Dataset", facts)


def _seed_table(run: Run) -> str:
    if len(run.seeds) < 2:
        return ""
    finals, best = final_returns(run), best_returns(run)
    last = "Final" if run.status == "finished" else "Last"
    columns: dict[str, list[float | None]] = {
        name: []
        for name in (f"{last} return", "Std over episodes", "Best return", "Training return", run.unit.capitalize())
    }
    for seed in run.seeds:
        evaluations = [episode_returns(row) for row in run.evaluations if row["seed"] == seed]
        metrics = [row for row in run.metrics if row["seed"] == seed]
        training = [value for row in metrics if (value := as_number(row.get(TRAINING_RETURN))) is not None]
        spread = std_of(evaluations[-1]) if seed in finals else None
        steps = metrics[-1]["step"] if metrics else None
        cells = (finals.get(seed), spread, best.get(seed), training[-1] if training else None, steps)
        for column, cell in zip(columns.values(), cells, strict=True):
            column.append(cell)
    columns = {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
    lines = []
    for seed, *shown in zip(run.seeds, *map(format_column, columns.values()), strict=True):
        numbers = "".join(f"<td>{cell}</td>" for cell in (escape(str(seed)), *shown))
        state = '<span class="status failed">failed</span>' if str(seed) in run.failed_seeds else ""
        lines.append(f"<tr>{numbers}<td>{state}</td></tr>")
    head = "".join(f"<th>{name}</th>" for name in ("Seed", *columns, ""))
    table = f'<table class="numbers"><tr>{head}</tr>{"".join(lines)}</table>'
    return f'<h2>Seeds</h2><div class="card scroll" tabindex="0">{table}</div>'


def _provenance(run: Run) -> str:
    command = run.info.get("command")
    facts = {
        "Command": shlex.join(map(str, command)) if isinstance(command, list) else command,
        "Same run again": reproduction(run),
        "Git commit": run.info.get("git_commit"),
        "Versions": _pairs(run.info.get("versions"), " "),
        "Execution plan": _pairs(run.info.get("execution_plan"), ": "),
        "Resume": " – ".join(str(run.info[key]) for key in ("resume", "resume_note") if run.info.get(key)),
    }
    config = escape(run.config)
    return _facts("How it was made", facts) + (
        f'<details class="card"><summary>Configuration</summary><pre>{config}</pre></details>' if config else ""
    )


def reproduction(run: Run) -> str:
    """The command that trains the run again from its config."""
    return f"rl-training train --config {shlex.quote(str(run.path / 'config.yaml'))}" if run.path and run.config else ""


def _facts(title: str, facts: dict[str, Any]) -> str:
    lines = "".join(
        f"<tr><th>{name}</th><td><code>{escape(str(value))}</code></td></tr>" for name, value in facts.items() if value
    )
    return f'<h2>{title}</h2><div class="card"><table class="facts">{lines}</table></div>' if lines else ""


def _pairs(values: Any, between: str) -> str:
    return ", ".join(f"{name}{between}{value}" for name, value in as_mapping(values).items())
