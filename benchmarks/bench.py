"""The speed of this library and of others that take turns with it on the same cores: `make bench`.

python benchmarks/bench.py --peers PATH --d3rlpy PATH --tianshou PATH [--quick] [--only NAME…] [--rounds 8]
Each PATH is an interpreter of an environment that `make bench` builds; without one its comparisons are left out. What
is measured is written at once, and a repeated command measures the rest. Delete the file, or pass --again, to start
anew. Writes benchmarks/results/speed-cpu.json and docs/speed.md, or --output and --page.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from programs import PROGRAMS, compare_programs
from provenance import COMMIT, write_result
from speed_page import PAGE, write_page
from turns import Task, compare, machine
from workloads import GROUPS, QUICK

RESULT = Path(__file__).resolve().parent / "results" / "speed-cpu.json"
PROGRAM_ROUNDS = 5  # of whole programs, which take seconds each
USUAL = "peers"  # the environment of a peer that names none


def with_interpreters(task: Task, pythons: dict[str, str]) -> Task:
    """The task with the peers whose environments are there."""
    named = [replace(peer, python=pythons.get(peer.python or USUAL, peer.python)) for peer in task.peers]
    return replace(task, peers=[peer for peer in named if peer.python is not None and Path(peer.python).exists()])


def stretch(task: Task, args: argparse.Namespace) -> int | None:
    """The length of a turn; None: that of the task."""
    return max(task.stretch // 4, 10) if args.quick and task.unit != "calls" else None


def shown(one: dict[str, Any]) -> str:
    if "error" in one:
        return f"{one['task']:22} failed: {one['error']}"
    if "peer" not in one:
        return f"{one['task']:22} {one['ours_s']:.2f} s"
    low, high = one["ratio_interval"]
    return f"{one['task']:22} {one['ratio_median']:6.2f} [{low:.2f}, {high:.2f}] times {one['peer']}"


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in (USUAL, "d3rlpy", "tianshou"):
        parser.add_argument(f"--{name}", help="an interpreter")
    parser.add_argument("--quick", action="store_true", help="a few workloads, few and short rounds")
    parser.add_argument("--only", nargs="+", choices=[name for tasks in GROUPS.values() for name in tasks])
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--again", action="store_true", help="measure what the file has once more")
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--page", type=Path, default=PAGE, help="docs/speed.md by default")
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 8)
    pythons = {name: getattr(args, name) for name in (USUAL, "d3rlpy", "tianshou") if getattr(args, name)}
    kept = json.loads(args.output.read_text()) if args.output.exists() and not args.again else {}
    if kept and (kept["provenance"]["commit"] != COMMIT or kept["rounds"] != args.rounds):
        raise SystemExit(f"{args.output} is of another commit or number of rounds: delete it, or pass --again")
    result: dict[str, Any] = {"machine": machine(), "rounds": args.rounds, **kept}
    result.pop("provenance", None)
    chosen = args.only or (QUICK if args.quick else [name for tasks in GROUPS.values() for name in tasks])

    def add(found: list[dict[str, Any]], name: str, measure: Callable[[], list[dict[str, Any]]]) -> None:
        """Add the rows of a workload, unless they are there, and write everything."""
        if any(one["task"] == name and "error" not in one for one in found):
            return
        try:
            rows = measure()
        except (AssertionError, ValueError, OSError) as error:  # a peer that cannot start must not end the others
            rows = [{"task": name, "error": str(error) or type(error).__name__}]
        found[:] = [one for one in found if one["task"] != name] + rows
        print(*map(shown, rows), sep="\n", flush=True)
        write_result(args.output, result, *pythons.values())
        write_page(args.output, args.page)

    for group, tasks in GROUPS.items():
        for name in chosen:
            if name in tasks and (task := with_interpreters(tasks[name], pythons)).peers:
                add(
                    result.setdefault(group, []),
                    name,
                    partial(compare, name, task, "", args.rounds, stretch(task, args)),
                )
    if args.only is None:
        for name, program in PROGRAMS.items():
            rounds = min(args.rounds, PROGRAM_ROUNDS)
            add(result.setdefault("programs", []), name, partial(compare_programs, name, program, pythons, rounds))


if __name__ == "__main__":
    main()
