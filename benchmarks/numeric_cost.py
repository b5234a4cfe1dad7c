"""The cost of the numeric modes on a CPU: updates per second of processor time, in alternating turns.

python benchmarks/numeric_cost.py [--rounds 8] [--output benchmarks/results/numeric-cost.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from provenance import write_result

from rl_training.core.numerics import LIBRARY_VARIABLES

MODES = ("native", "pinned", "portable")
# algorithm, compiled, updates in a turn
TASKS = (("sac", False, 30), ("sac", True, 40), ("dqn", False, 150), ("drq", False, 2))


def take_turns(algo: str, compiled: bool, updates: int) -> None:
    """A process in one mode: for every line on stdin, run some updates and print their speed."""
    import torch
    from sources import SHAPES, filled_source, shape_name

    from rl_training.algorithms.registry import learner_class

    torch.set_num_threads(1)
    cls = learner_class(algo)
    settings = cls.settings_type(batch_size=32) if (cls.observations == ("image",)) else cls.settings_type()
    shape = SHAPES[shape_name(algo)]
    learner = cls.create(shape, settings, [0], compiled=compiled)
    source = filled_source(shape, settings, 1, "cpu")
    for step in range(3):
        learner.train(source, 2, step)
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.process_time()  # of this process only: the machine may be busy
        learner.train(source, updates, 1)
        print(updates / (time.process_time() - started), flush=True)


def measure(algo: str, compiled: bool, updates: int, rounds: int) -> dict[str, Any]:
    processes = {}
    for mode in MODES:
        command = [sys.executable, __file__, "--one", algo, str(int(compiled)), str(updates)]
        # Without the variables that this process set: a child would take them for the user's.
        env = {name: value for name, value in os.environ.items() if name not in LIBRARY_VARIABLES}
        env["RL_TRAINING_NUMERICS"] = mode
        processes[mode] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )  # fmt: skip
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    for process in processes.values():
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for _ in range(rounds):
        for mode, process in processes.items():
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n")
            process.stdin.flush()
            rates[mode].append(float(process.stdout.readline()))
    for process in processes.values():
        process.communicate()
    ratios = {
        mode: statistics.median(one / native for one, native in zip(rates[mode], rates["native"], strict=True))
        for mode in MODES
    }
    found = {"algo": algo, "compiled": compiled, "updates_per_s": rates, "of_native": ratios}
    print(json.dumps({**found, "updates_per_s": {mode: statistics.median(rates[mode]) for mode in MODES}}), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        take_turns(args.one[0], args.one[1] == "1", int(args.one[2]))
        return
    rows = [measure(*task, args.rounds) for task in TASKS]
    if args.output:
        reached = ", ".join(
            f"{row['algo']} {'compiled' if row['compiled'] else 'eager'} {row['of_native']['pinned']:.2f} pinned and "
            f"{row['of_native']['portable']:.2f} portable"
            for row in rows
        )
        what = "cost of the numeric modes on one CPU core, updates per second against native"
        write_result(args.output, {"what": what, "reached": reached, "tasks": rows})


if __name__ == "__main__":
    main()
