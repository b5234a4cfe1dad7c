"""The results as one static page: every proof with its peer and published value, curves and filters.

python benchmarks/results_page.py [--results benchmarks/results] [--output build/results.html]
"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from learn import by_step, passed, peer_of, steps_label

from rl_training.core.d4rl import reference_bounds
from rl_training.core.statistics import summarize, uses_iqm
from rl_training.report.charts import Point, Series, format_number, line_chart
from rl_training.report.html import card, page, table
from rl_training.report.page import duration, replace_page

STATES = {True: "reached", False: "not reached", None: "no peer yet"}
TONES = {"reached": "finished", "not reached": "failed", "no peer yet": "unknown", "not finished": "stopped"}
PUBLISHED = re.compile(r"(?P<d4rl>D4RL score )?(?P<value>-?[\d,]*\.?\d+)[^(]*\(")  # a value and its source
DATA = re.compile(r"the data: (?P<value>-?[\d,]*\.?\d+)")
SCRIPT = """
const shown = document.querySelector('#shown'), filters = [...document.querySelectorAll('[data-filter]')];
const entries = [...document.querySelectorAll('[data-name]')];
function apply() {
  let count = 0;
  for (const entry of entries) {
    const fits = filters.every(f => f.type === 'search' ? entry.dataset.name.includes(f.value.toLowerCase())
      : !f.value || entry.dataset[f.dataset.filter] === f.value);
    entry.hidden = !fits;
    if (fits && entry.tagName === 'TR') count += 1;
  }
  shown.textContent = count + ' of ' + entries.filter(e => e.tagName === 'TR').length + ' shown';
}
filters.forEach(f => f.addEventListener('input', apply));
apply();
"""


@dataclass(frozen=True)
class Entry:
    """One learning proof with everything the page shows of it."""

    result: dict[str, Any]
    peer: dict[str, Any] | None
    reached: bool | None

    @property
    def name(self) -> str:
        return str(self.result["name"])

    @property
    def algo(self) -> str:
        return str(self.result["config"]["algo"])

    @property
    def env(self) -> str:
        return str(self.result["config"]["env_id"])

    @property
    def state(self) -> str:
        return STATES[self.reached]

    @property
    def summary(self) -> dict[str, Any]:
        """Of the agents that count: the best ones, the last ones, or the best evaluation."""
        return dict(self.result["summary"][self.result.get("judged") or "best"])

    @property
    def value(self) -> float:
        return float(self.summary["mean" if self.result.get("judged") == "evaluation" else "iqm"])

    @property
    def published(self) -> float | None:
        """The published return, also of a published D4RL score; None where there is none."""
        if not (found := PUBLISHED.match(self.result["reference"])):
            return None
        value = float(found["value"].replace(",", ""))
        if found["d4rl"]:
            bounds = reference_bounds(self.env)
            return None if bounds is None else bounds[0] + value / 100 * (bounds[1] - bounds[0])
        return value

    @property
    def data_return(self) -> float | None:
        """The mean return of the dataset, where that is what the result is compared with."""
        found = DATA.match(self.result["reference"])
        return float(found["value"].replace(",", "")) if found else None

    @property
    def command(self) -> str:
        recorded = self.result["provenance"].get("command")
        return str(recorded) if recorded else f"python benchmarks/learn.py {self.name}  (not recorded)"

    @property
    def commit(self) -> str:
        source = self.result["provenance"]
        return f"{str(source.get('commit'))[:12]}{' (inferred)' if source.get('inferred') else ''}"


def read_entries(folder: Path) -> tuple[list[Entry], list[tuple[str, dict[str, Any]]]]:
    """The proofs, and the other measurements by name."""
    entries, others = [], []
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        if "fresh_returns" in result:
            entries.append(Entry(result, peer_of(result["name"], folder), passed(result, folder)))
        elif not path.name.startswith("peer-"):
            others.append((path.stem, result))
    return entries, others


def interval(summary: dict[str, Any], value: float | None = None) -> str:
    """`412.3 [390.1, 430.9]`; of fewer than four seeds `412.3 (mean of 3)`."""
    shown = format_number(summary["iqm"] if value is None else value)
    if not uses_iqm(summary["n"]):
        return f"{shown} (mean of {summary['n']})"
    low, high = summary["interval"]
    return f"{shown} [{format_number(low)}, {format_number(high)}]"


def difference(value: float, other: float | None) -> str:
    if other is None:
        return "–"
    return f"{'+' if value >= other else ''}{format_number(round(value - other, 6))}"


def wanted(entry: Entry) -> str:
    threshold = entry.result["threshold"]
    sign = "at most" if entry.result.get("at_most") else "at least"
    return "the peer's" if threshold is None else f"{sign} {format_number(threshold)}"


HEAD = (
    "proof", "state", "result", "wanted", "peer", "to peer", "published", "to published", "algorithm", "environment",
    "budget", "seeds", "time", "device",
)  # fmt: skip


def cells(entry: Entry) -> list[str]:
    """The row of a proof, without its name and state."""
    result, peer = entry.result, entry.peer
    return [
        interval(entry.summary, entry.value),
        wanted(entry),
        interval(peer) if peer else "–",
        difference(entry.value, peer["iqm"] if peer else None),
        "–" if entry.published is None else format_number(entry.published),
        difference(entry.value, entry.published),
        entry.algo,
        entry.env,
        f"{result['config']['total_timesteps']:,}",
        str(result["summary"]["final"]["n"]),
        duration(result["train_seconds"]),
        str(result["engine"]["device"]),
    ]


def badge(state: str) -> str:
    return f'<span class="status {TONES[state]}">{state}</span>'


def data_attributes(entry: Entry) -> str:
    values = {"name": f"{entry.name} {entry.env}".lower(), "algo": entry.algo, "env": entry.env, "state": entry.state}
    return " ".join(f'data-{key}="{escape(value)}"' for key, value in values.items())


def summary_table(entries: list[Entry]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in HEAD)
    lines = []
    for entry in entries:
        rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells(entry))
        name = f'<a href="#{escape(entry.name)}">{escape(entry.name)}</a>'
        lines.append(
            f'<tr {data_attributes(entry)}><th scope="row">{name}</th><td>{badge(entry.state)}</td>{rest}</tr>'
        )
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>"
    return card(f'<table class="cells">{body}</table>', "scroll")


def chart(entry: Entry) -> str:
    """The curve over seeds, with the published value and the peer's dashed."""
    points = []
    for step, values in by_step(entry.result["curve"]).items():
        across = summarize(values)
        band = across["interval"] if uses_iqm(across["n"]) else (None, None)
        points.append(Point(step, across["iqm"], *band))
    series = [Series("evaluation", points, markers=True)]
    ends = (0.0, max((point.x for point in points), default=1.0))
    peer = entry.peer["iqm"] if entry.peer else None
    levels = {"published": entry.published, "peer": peer, "mean of the data": entry.data_return}
    for color, (name, level) in enumerate(levels.items(), 1):
        if level is not None:
            series.append(Series(name, [Point(end, level) for end in ends], dashed=True, color=color))
    steps = steps_label(entry.result)
    return line_chart(series, "Evaluations while training", steps, "return", size=(480, 280))


def details(entry: Entry) -> str:
    """The card of a proof: its numbers, its curve, and how it was made."""
    result = entry.result
    facts = {
        "Reference": result["reference"],
        "Best agents": interval(result["summary"]["best"]),
        "Last agents": interval(result["summary"]["final"]),
        "Episodes per agent": str(result["episodes_per_agent"]),
        "Commit": entry.commit,
        "Command": entry.command,
        "Note": result.get("note", ""),
    }
    if result.get("d4rl_score") is not None:
        facts["D4RL score"] = f"{result['d4rl_score']:.1f}"
    rows = "".join(
        f"<tr><th>{name}</th><td><code>{escape(value)}</code></td></tr>" for name, value in facts.items() if value
    )
    head = f'<h3 id="{escape(entry.name)}">{escape(entry.name)} {badge(entry.state)}</h3>'
    about = f"{entry.algo} on {entry.env}: {interval(entry.summary, entry.value)}, wanted {wanted(entry)}"
    body = f'{head}<p class="about">{escape(about)}</p>{chart(entry)}<table class="facts">{rows}</table>'
    return f'<section class="card" {data_attributes(entry)}>{body}</section>'


def choice(label: str, key: str, values: list[str]) -> str:
    options = "".join(f'<option value="{escape(value)}">{escape(value)}</option>' for value in values)
    return f'<label>{label} <select data-filter="{key}"><option value="">all</option>{options}</select></label>'


def filters(entries: list[Entry]) -> str:
    search = '<label>name <input type="search" data-filter="name" placeholder="pendulum"></label>'
    parts = [search, choice("algorithm", "algo", sorted({entry.algo for entry in entries}))]
    parts.append(choice("environment", "env", sorted({entry.env for entry in entries})))
    parts.append(choice("state", "state", sorted({entry.state for entry in entries})))
    return f'<div class="filters" role="search">{"".join(parts)}<span id="shown" role="status"></span></div>'


def other_measurements(others: list[tuple[str, dict[str, Any]]]) -> str:
    rows = []
    for name, result in others:
        state = "not finished" if "unfinished" in name else "measured"
        text = ": ".join(str(result[key]) for key in ("what", "reached") if key in result)
        source = result.get("provenance", {})
        rows.append([name, state, text, str(source.get("commit"))[:12], str(source.get("command") or "not recorded")])
    return card(table(["measurement", "state", "what", "commit", "command"], rows, "cells words prose"))


def results_page(folder: Path) -> str:
    """The whole page of a folder of results."""
    entries, others = read_entries(folder)
    missed = [entry for entry in entries if entry.reached is False]
    unfinished = [name for name, _ in others if "unfinished" in name]
    links = ", ".join(f'<a href="#{escape(entry.name)}">{escape(entry.name)}</a>' for entry in missed)
    parts = [
        "<h1>Results</h1>",
        f'<p class="about">{len(entries)} learning proofs: greedy policy on fresh episodes, interquartile mean over '
        "seeds [95 % interval]; of fewer than four seeds the mean</p>",
        f'<p class="card callout failed"><b>Not reached: {len(missed)}.</b> {links}</p>' if missed else "",
        f'<p class="card callout stopped"><b>Not finished: {len(unfinished)}.</b> {escape(", ".join(unfinished))}</p>'
        if unfinished
        else "",
        filters(entries),
        summary_table(entries),
        f'<div class="row">{"".join(map(details, entries))}</div>',
        f"<h2>Other measurements</h2>{other_measurements(others)}",
    ]
    return page("Results of rl_training", "\n".join(filter(None, parts)), script=SCRIPT)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--output", type=Path, default=Path("build/results.html"))
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    print(f"page {replace_page(args.output, results_page(args.results))}")


if __name__ == "__main__":
    main()
