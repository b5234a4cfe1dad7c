"""The speed of this library and of others that take turns with it on the same cores: `make bench`.

python benchmarks/bench.py --peers PATH --d3rlpy PATH --tianshou PATH [--quick] [--only NAME…] [--rounds 8]
Each PATH is an interpreter of an environment that `make bench` builds; without one its comparisons are left out. What
is measured is written at once, and a repeated command measures the rest. Delete the file, or pass --again, to start
anew. Writes benchmarks/results/speed-cpu.json and docs/speed.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from provenance import COMMIT, write_result
from speed_page import PAGE, page
from turns import Task, compare, machine
from workloads import GROUPS, QUICK

RESULT = Path(__file__).resolve().parent / "results" / "speed-cpu.json"
USUAL = "peers"  # the environment of a peer that names none
# Programs that start and end: this library's, and the same of a peer.
COMMANDS = {
    "import": ("import rl_training", "import stable_baselines3"),
    "import of an algorithm": ("from rl_training import SAC", "from stable_baselines3 import SAC"),
    "--help": ("import sys; sys.argv = ['rl-training', '--help']\nfrom rl_training.cli import main; main()", None),
}


def seconds(python: str, code: str) -> float:
    started = time.perf_counter()
    subprocess.run([python, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.perf_counter() - started


def commands(pythons: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Seconds of each command, in turns."""
    found = []
    for name, (ours, theirs) in COMMANDS.items():
        peer = pythons.get(USUAL) if theirs is not None else None
        rows = [(seconds(sys.executable, ours), seconds(peer, theirs or "") if peer else None) for _ in range(rounds)]
        one = {"command": name, "ours_s": round(statistics.median(row[0] for row in rows), 3)}
        if peer:
            one["peer_s"] = round(statistics.median(row[1] for row in rows if row[1] is not None), 3)
        found.append(one)
    return found


def with_interpreters(task: Task, pythons: dict[str, str]) -> Task:
    """The task with the peers whose environments are there."""
    named = [replace(peer, python=pythons.get(peer.python or USUAL, peer.python)) for peer in task.peers]
    return replace(task, peers=[peer for peer in named if peer.python is not None and Path(peer.python).exists()])


def measure(name: str, task: Task, args: argparse.Namespace) -> list[dict[str, Any]]:
    stretch = max(task.stretch // 4, 10) if args.quick and task.unit != "calls" else None
    try:
        return compare(name, task, "", args.rounds, stretch)
    except (AssertionError, ValueError, OSError) as error:  # a peer that cannot start must not end the others
        return [{"task": name, "error": str(error) or type(error).__name__}]


def shown(one: dict[str, Any]) -> str:
    if "error" in one:
        return f"{one['task']:22} failed: {one['error']}"
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
    args = parser.parse_args()
    args.rounds = args.rounds or (3 if args.quick else 8)
    pythons = {name: getattr(args, name) for name in (USUAL, "d3rlpy", "tianshou") if getattr(args, name)}
    kept = json.loads(args.output.read_text()) if args.output.exists() and not args.again else {}
    if kept and (kept["provenance"]["commit"] != COMMIT or kept["rounds"] != args.rounds):
        raise SystemExit(f"{args.output} is of another commit or number of rounds: delete it, or pass --again")
    result: dict[str, Any] = {"machine": machine(), "rounds": args.rounds, **kept}
    result.pop("provenance", None)
    chosen = args.only or (QUICK if args.quick else [name for tasks in GROUPS.values() for name in tasks])

    def write() -> None:
        write_result(args.output, result, pythons.get(USUAL))
        if args.output == RESULT:
            PAGE.write_text(page(json.loads(args.output.read_text())), encoding="utf-8")

    for group, tasks in GROUPS.items():
        found = result.setdefault(group, [])
        done = {one["task"] for one in found if "error" not in one}
        for name in chosen:
            task = with_interpreters(tasks[name], pythons) if name in tasks and name not in done else None
            if task is None or not task.peers:
                continue
            found[:] = [one for one in found if one["task"] != name]
            for one in measure(name, task, args):
                found.append(one)
                print(shown(one), flush=True)
            write()
    if "commands" not in result and args.only is None:
        result["commands"] = commands(pythons, args.rounds)
        write()


if __name__ == "__main__":
    main()
