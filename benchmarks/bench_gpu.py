"""Speed on a GPU, in absolute figures: `make bench-gpu` (4 minutes with 16 cores, on which the programs compile).

python benchmarks/bench_gpu.py [--device cuda] [--algos sac dqn …] [--seeds 1 4 16 64] [--rounds 3] [--eager]
                               [--set batch_size=512 …] [--only-updates] [--output FILE]
Updates alone, as one program for all seeds, with the share of the card's peak; whole runs of SAC in HalfCheetah-v5;
`predict` and batches from the replay; the same written plainly in eager torch. Programs compile side by side and take
turns. Writes benchmarks/results/speed-gpu.json and docs/speed.md. --device cpu, with tiny sizes, only tests it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from flops import update_flops
from provenance import write_result
from sources import learner_class, parse_changes, shape_name, updates_per_call
from speed_page import CPU, GPU, PAGE, write_page
from turns import Side, in_turns, machine

ALGOS = ("sac", "td3", "tqc", "redq", "dqn", "qr_dqn", "iql", "cql")
# Published peaks of dense products with TF32, by a part of the device's name: floating-point operations per second.
PEAKS = {"H200": 494.7e12, "H100": 494.7e12, "A100": 156e12, "L40S": 183e12, "4090": 82.6e12}
TASK, TURN_S = "HalfCheetah-v5", 0.5


@dataclass(frozen=True)
class Program:
    """One measured program: the row it makes, its side, and what one unit of its rate is worth."""

    row: dict[str, Any]
    script: str
    arguments: list[str]
    per_unit: int = 1  # updates or steps of all seeds in one counted step

    def start(self) -> Side:
        return Side(sys.executable, self.script, self.arguments)


def update_program(algo: str, seeds: int, args: argparse.Namespace) -> Program:
    settings = parse_changes(learner_class(algo), args.changes)
    at_once = updates_per_call(settings) if args.device != "cpu" else 1
    flops = update_flops(algo, shape_name(algo), tuple(args.changes))
    count = turn(seeds * flops / 20e12 + 2.5e-4, at_once, args)
    words = [*args.changes, f"seeds={seeds}", f'device="{args.device}"', compile_word(args)]
    arguments = [algo, shape_name(algo), str(3 * at_once), str(count), *words]
    return Program({"algo": algo, "seeds": seeds, "flop": flops}, "side_learner.py", arguments, seeds)


def run_program(seeds: int, args: argparse.Namespace) -> Program:
    """SAC in its environment: acting, stepping, storing and learning; without evaluations."""
    count = turn(4e-4 + 60e-6 * seeds, 1, args)
    words = ["learning_starts=50", "buffer_capacity=100000", *args.changes, f"seeds={seeds}"]
    words += [f'device="{args.device}"', compile_word(args)]
    row = {"algo": "sac", "seeds": seeds, "env": TASK}
    return Program(row, "side_ours.py", ["sac", TASK, "100", str(count), *words], seeds)


def plain_programs(args: argparse.Namespace) -> list[Program]:
    """The same written plainly in eager torch: one seed."""
    device = f'device="{args.device}"'
    words = ["plain", "SAC", TASK, "5", str(turn(2e-3, 1, args)), device]
    found = [Program({"algo": "sac", "seeds": 1}, "side_sac_eager.py", words)]
    pixels = [("drq", "5", "30"), ("drqv2", "5", "30")] if args.device != "cpu" else []
    for algo, warm_up, count in pixels:
        row, words = {"algo": algo, "seeds": 1}, ["plain", algo, "pixels", warm_up, count, device, "workers=4"]
        found.append(Program(row, "side_pixels_eager.py", words))
    return found


def call_programs(args: argparse.Namespace) -> list[Program]:
    """`predict` of 1 and 1,024 observations, a batch of 256 from the replay."""
    device = f'device="{args.device}"'
    return [
        Program({"call": name}, "side_calls.py", ["sac", TASK, "20", "200", what, device])
        for name, what in (("predict of 1", "rows=1"), ("predict of 1,024", "rows=1024"), ("batch of 256", "batch=256"))
    ]


def turn(guess_s: float, at_once: int, args: argparse.Namespace) -> int:
    """Counted steps of a turn of about half a second, a multiple of those that run at once."""
    if args.device == "cpu":
        return 2 * at_once
    return max(2, min(4000, int(TURN_S / guess_s / at_once))) * at_once


def compile_word(args: argparse.Namespace) -> str:
    return f'compile="{"off" if args.eager else "on"}"'


def measure(programs: list[Program], args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of programs that compile side by side and take turns."""
    rows = []
    found = in_turns([program.start for program in programs], args.rounds, args.parallel)
    for program, timed in zip(programs, found, strict=True):
        row = dict(program.row)
        if timed is None:
            row["error"] = "it did not start"
        else:
            rate = statistics.median(timed.rates)
            row |= {"per_s": rate, "all_per_s": program.per_unit * rate, "ready_s": round(timed.ready_s, 1)}
            row |= {"rates": [round(one, 2) for one in timed.rates], "peak_mib": timed.peak_mib}
        print(row, flush=True)
        rows.append(row)
    return rows


def product_rate(device: str) -> float:
    """Operations per second of a large matrix product with TF32, the most that this device shows here."""
    torch.set_float32_matmul_precision("high")
    size, times = (8192, 20) if device != "cpu" else (512, 5)
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    wait: Callable[[], None] = torch.cuda.synchronize if device != "cpu" else lambda: None
    best = float("inf")
    for _ in range(5):
        wait()
        started = time.perf_counter()
        for _ in range(times):
            a @ b
        wait()
        best = min(best, (time.perf_counter() - started) / times)
    return 2 * size**3 / best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--algos", nargs="+", default=list(ALGOS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--eager", action="store_true", help="without compilation")
    parser.add_argument("--only-updates", action="store_true")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=JSON", dest="changes", help="settings")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--parallel", type=int, default=max(1, cores - 2), help="programs that compile at once")
    parser.add_argument("--output", type=Path, default=GPU)
    args = parser.parse_args()
    name = torch.cuda.get_device_name(0) if args.device == "cuda" else "cpu"
    peak = next((value for part, value in PEAKS.items() if part in name), None)
    result: dict[str, Any] = {"machine": {**machine(), "device": name}, "rounds": args.rounds}
    result |= {"peak_flops": peak, "product_flops": product_rate(args.device)}
    groups = {"updates": [update_program(algo, seeds, args) for algo in args.algos for seeds in args.seeds]}
    if not args.only_updates:
        groups["runs"] = [run_program(seeds, args) for seeds in args.seeds]
        groups |= {"plain": plain_programs(args), "calls": call_programs(args)}
    rows = iter(measure([program for programs in groups.values() for program in programs], args))
    for group, programs in groups.items():
        result[group] = [next(rows) for _ in programs]
    for row in result["updates"]:
        if "error" not in row:
            used = row["all_per_s"] * row["flop"]
            row |= {"share_of_product": used / result["product_flops"], "share_of_peak": peak and used / peak}
    write_result(args.output, result)
    if args.output == GPU:
        write_page(CPU, PAGE)


if __name__ == "__main__":
    main()
