"""Microseconds per vector step of MuJoCo environments: in this process, in worker processes, and in threads.

python benchmarks/env_stepping.py [--envs HalfCheetah-v5 ...] [--rows 16] [--counts 2 4 8] [--output FILE]

All ways take turns over the same actions, round by round; figures are medians over the rounds, with their range.
Episodes that end are started again within the time. The results of all ways are equal bit for bit, which is checked.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from provenance import write_result

from rl_training.core.rng import stream
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run.plan import cores

ENVS = ("HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
ROUNDS = 12


def measure(env_id: str, rows: int, counts: list[int], steps: int) -> dict[str, Any]:
    """Median, minimum and maximum over the rounds for each way."""
    ways: dict[str, dict[str, int]] = {"in process": {}, "1 thread": {"threads": 1}}
    for count in counts:
        ways |= {f"{count} workers": {"workers": count}, f"{count} threads": {"threads": count}}
    made = {name: SeededEnvs(EnvSource(env_id), range(rows), 1, **how) for name, how in ways.items()}
    times: dict[str, list[float]] = {name: [] for name in made}
    try:
        for envs in made.values():
            envs.reset_all()
        for turn in range(ROUNDS + 1):
            found = {}
            for name, envs in made.items():
                seconds = _play(envs, turn * steps, steps)
                found[name] = (envs.obs.tobytes(), envs.rewards.tobytes())
                if turn:  # the first warms up
                    times[name].append(1e6 * seconds / steps)
            assert len(set(found.values())) == 1, "the results depend on how environments are stepped"
    finally:
        for envs in made.values():
            envs.close()
    return {name: [round(f(t)) for f in (statistics.median, min, max)] for name, t in times.items()}


def _play(envs: SeededEnvs, first: int, steps: int) -> float:
    shape = (steps, envs.size, envs.action.spec.size)
    actions = stream(0, "explore", first).uniform(-1, 1, shape).astype(np.float32)
    start = time.perf_counter()
    for action in actions:
        envs.step(action)
        envs.advance()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", nargs="+", default=list(ENVS))
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--counts", type=int, nargs="+", help="of processes and threads; default: powers of two")
    parser.add_argument("--steps", type=int, default=100, help="of each way in each round")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    counts = args.counts or [count for count in (2, 4, 8, 16) if count <= cores()]
    results = {}
    for env_id in args.envs:
        results[env_id] = measure(env_id, args.rows, counts, args.steps)
        print(f"{env_id}, {args.rows} rows, {cores()} cores: microseconds per vector step, median (range)")
        for name, (median, low, high) in results[env_id].items():
            print(f"  {name:<12}{median:>7} ({low} to {high})", flush=True)
    if args.output:
        whole = {"rows": args.rows, "cores": cores(), "rounds": ROUNDS, "microseconds_median_min_max": results}
        write_result(args.output, whole)


if __name__ == "__main__":
    main()
