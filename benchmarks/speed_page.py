"""Writes docs/speed.md from benchmarks/results/speed-cpu.json: `python benchmarks/speed_page.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULT = ROOT / "docs" / "speed.md", ROOT / "benchmarks" / "results" / "speed-cpu.json"
HEAD = """\
<!-- Written by benchmarks/speed_page.py from benchmarks/results/speed-cpu.json: run `make bench`. -->
# Speed

Every program takes turns with its peers on the same cores, with the same settings as far as both have them. A ratio is
this library's rate divided by the peer's: its median over the rounds, with a bootstrap interval of 95 %.
"""
TITLES = {
    "training": "End-to-end training",
    "updates": "Updates of offline algorithms",
    "calls": "Single calls: prediction, replay sampling",
}


def row(one: dict[str, Any]) -> str:
    if "error" in one:
        return f"| {one['task']} | | failed: {one['error']} | | | | |"
    low, high = one["ratio_interval"]
    ready, memory = ("{:g} / {:g}".format(*one[name]) for name in ("ready_s", "peak_mib"))
    rates = f"{one['ours_steps_per_s']:,.0f} | {one['peer_steps_per_s']:,.0f}"
    return f"| {one['task']} | {one['peer']} | **{one['ratio_median']:.2f}** [{low:.2f}, {high:.2f}] | {rates} | {ready} | {memory} |"  # noqa: E501


def page(result: dict[str, Any]) -> str:
    """The page of a result."""
    made = result["provenance"]
    versions = {**made["versions"], **made.get("peer_versions", {})}
    names = ("processor", "torch", "stable-baselines3", "sb3-contrib", "sbx-rl")
    where = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    cores, commit = result["machine"]["cores"], made["commit"][:12]
    lines = [HEAD, f"{cores} cores, {result['rounds']} rounds; {where}; commit {commit}."]
    for group, title in TITLES.items():
        if result.get(group):
            unit = next((one["unit"] for one in result[group] if "unit" in one), "steps")
            lines += ["", f"## {title}", ""]
            lines += [f"| workload | peer | ratio | {unit}/s | peer's | ready (s) | memory (MiB) |"]
            lines += ["|---|---|---|---|---|---|---|", *map(row, result[group])]
    if result.get("commands"):
        lines += ["", "## Import and help", "", "| command | seconds | stable_baselines3's |", "|---|---|---|"]
        lines += [f"| {one['command']} | {one['ours_s']} | {one.get('peer_s', '')} |" for one in result["commands"]]
    lines += [
        "",
        "*Ready* is the time from the start of the program to the end of its warm-up, with compilation, ours before",
        "the peer's; *memory* is the most that the process had. `make bench` repeats the measurement (`--quick`: see",
        "`benchmarks/bench.py`).",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(RESULT.read_text())), encoding="utf-8")
