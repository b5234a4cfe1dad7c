"""How the cost of an update, or of a step of the loop, grows with one factor at a time: `make cost-growth`.

python benchmarks/cost_growth.py [--device cpu|cuda] [--only width …] [--values 64 256] [--rounds 3] [--eager]
SAC with the shapes of HalfCheetah-v5, 256x256, a batch of 256; REDQ for more critics; the environments are real ones,
with one update per step of the loop. Programs of a factor compile side by side and are measured in turns. Writes
benchmarks/results/cost-growth-<device>.json, a picture for each factor beside it, and docs/speed.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from flops import update_flops
from growth_profile import largest_growth
from provenance import write_result
from speed_page import CPU, PAGE, write_page
from svg import standalone
from turns import Side, in_turns, machine

from rl_training.report.charts import Point, Series, line_chart

RESULTS, SHAPE = Path(__file__).resolve().parent / "results", "HalfCheetah-v5"
BREAK = 1.25  # where the time grows so many times more than the work, scaling breaks
TURN_S = 0.5


@dataclass(frozen=True)
class Factor:
    """One factor: its values on a GPU and on a CPU, and the settings that a value stands for."""

    values: Sequence[int]
    cpu_values: Sequence[int]
    settings: Callable[[int], list[str]]
    algo: str = "sac"
    script: str = "side_learner.py"

    def work(self, value: int) -> float:
        """Operations of one step: those of its updates, or of all environments' steps."""
        if self.script == "side_ours.py":
            return value
        words = [word for word in self.settings(value) if not word.startswith(("seeds=", "updates="))]
        return update_flops(self.algo, SHAPE, tuple(words)) * self.times(value)

    def times(self, value: int) -> int:
        """Seeds or updates of one step."""
        named = [word for word in self.settings(value) if word.startswith(("seeds=", "updates="))]
        return int(named[0].partition("=")[2]) if named else 1


FACTORS = {
    "width": Factor((64, 128, 256, 512, 1024, 2048), (64, 256, 1024, 2048), lambda n: [f"hidden_sizes=[{n},{n}]"]),
    "batch": Factor((64, 256, 1024, 4096, 8192), (64, 512, 2048, 8192), lambda n: [f"batch_size={n}"]),
    "update ratio": Factor((1, 2, 4, 8, 16, 32), (1, 4, 32), lambda n: [f"updates={n}"]),
    "critics": Factor(
        (2, 5, 10, 20, 50), (2, 10, 50),
        lambda n: [f"num_critics={n}", "subset_size=2", "gradient_updates_per_step=1", "updates=1"], "redq",
    ),
    "seeds": Factor((1, 4, 16, 64), (1, 8, 64), lambda n: [f"seeds={n}"]),
    "environments": Factor(
        (1, 4, 16, 64, 256), (1, 16, 256),
        lambda n: [f"num_envs={n}", f"train_frequency={n}", "learning_starts=300", "buffer_capacity=100000"],
        script="side_ours.py",
    ),
}  # fmt: skip


def turn_length(factor: Factor, value: int, work: float, device: str) -> int:
    """Calls of a turn of about half a second, from a rough guess of a call's time."""
    if factor.script == "side_ours.py":
        call = 1e-3 + 60e-6 * value
    else:
        call = (2e-3 + work / 40e9) if device == "cpu" else (3e-4 * factor.times(value) ** 0.5 + work / 20e12)
    return max(2, min(1000, int(TURN_S / call)))


def updates_of(factor: Factor, value: int) -> int:
    """The updates of one call."""
    return factor.times(value) if any(word.startswith("updates=") for word in factor.settings(value)) else 1


def start(factor: Factor, value: int, work: float, args: argparse.Namespace) -> Side:
    """The program of one value, compiled and warm."""
    calls, updates = turn_length(factor, value, work, args.device), updates_of(factor, value)
    words = [*factor.settings(value), f'device="{args.device}"', f'compile="{"off" if args.eager else "on"}"']
    warm_up = 20 + -(-300 // value) if factor.script == "side_ours.py" else 3 * updates
    return Side(sys.executable, factor.script, [factor.algo, SHAPE, str(warm_up), str(calls * updates), *words])


def measure(names: Sequence[str], args: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """The rows of factors, whose programs compile side by side and take turns."""
    places = [(name, value) for name in names for value in values_of(name, args)]
    works = [FACTORS[name].work(value) for name, value in places]
    starts = [partial(start, FACTORS[name], n, work, args) for (name, n), work in zip(places, works, strict=True)]
    found = in_turns(starts, args.rounds, args.parallel)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for (name, value), work, timed in zip(places, works, found, strict=True):
        if timed is None:
            print(f"{name} {value} failed", flush=True)
            continue
        taken = [1e3 * updates_of(FACTORS[name], value) / rate for rate in timed.rates]
        row = {"value": value, "ms": statistics.median(taken), "all_ms": [round(one, 4) for one in taken]}
        rows[name].append({**row, "work": work, "peak_mib": timed.peak_mib, "ready_s": round(timed.ready_s, 1)})
    return rows


def values_of(name: str, args: argparse.Namespace) -> Sequence[int]:
    factor = FACTORS[name]
    return args.values or (factor.cpu_values if args.device == "cpu" else factor.values)


def first_break(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The first step of a factor at which the time grows more than the work."""
    for before, after in pairwise(rows):
        time, work = after["ms"] / before["ms"], after["work"] / before["work"]
        if time > BREAK * work:
            return {"from": before["value"], "to": after["value"], "time_grows": time, "work_grows": work}
    return None


def explained(name: str, found: dict[str, Any] | None, device: str) -> dict[str, Any] | None:
    """The break with the operators whose time grows most beyond the work, from a profile of the eager update."""
    factor = FACTORS[name]
    if found is None or factor.script == "side_ours.py":
        return found
    sides = [(factor.settings(found[end]), factor.times(found[end])) for end in ("from", "to")]
    return {**found, "operators": largest_growth(factor.algo, SHAPE, sides, device, found["work_grows"])}


def picture(name: str, rows: list[dict[str, Any]], device: str) -> str:
    """Milliseconds by value, and what they would be in proportion to the work, from the last value back."""
    last = rows[-1]
    measured = Series("measured", [Point(row["value"], row["ms"]) for row in rows], markers=True)
    even = [Point(row["value"], last["ms"] * row["work"] / last["work"]) for row in rows]
    series = [measured, Series("in proportion to the work", even, dashed=True)]
    return standalone(line_chart(series, f"{name}, {device}", name, "ms per step", x_name=name, scale="log"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--only", nargs="+", choices=list(FACTORS), default=list(FACTORS))
    parser.add_argument("--values", nargs="+", type=int, help="instead of those of the factor")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--eager", action="store_true", help="without compilation")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--parallel", type=int, default=cores, help="programs that compile at once")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    output = args.output or RESULTS / f"cost-growth-{args.device}.json"
    result: dict[str, Any] = {"machine": machine(), "rounds": args.rounds, "factors": {}}
    if output.exists() and args.output is None:  # the other factors stay
        result["factors"] = json.loads(output.read_text())["factors"]
    # A machine with a GPU has the cores and the memory to compile all programs at once.
    for names in [args.only] if args.device == "cuda" else [[name] for name in args.only]:
        for name, rows in measure(names, args).items():
            result["factors"][name] = {"rows": rows, "break": explained(name, first_break(rows), args.device)}
            print(json.dumps({name: result["factors"][name]}), flush=True)
            output.with_name(f"{output.stem}-{name.replace(' ', '-')}.svg").write_text(picture(name, rows, args.device))
            write_result(output, result)
    if args.output is None:
        write_page(CPU, PAGE)


if __name__ == "__main__":
    main()
