"""Training steps per second with a checkpoint every 10k steps against none, two runs taking turns on the same cores.

python benchmarks/checkpoint_overhead.py [--rounds 6] [--env Pendulum-v1] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

from provenance import write_result
from turns import Side

EVERY = 10_000
NEVER = 1_000_000_000


def compare(env_id: str, rounds: int) -> dict[str, object]:
    """Compare turns of one checkpoint interval; the order of the sides alternates."""
    # The warm-up of half an interval puts checkpoints into the middle of turns.
    # Small networks and batches: the faster the steps, the larger the share of a checkpoint.
    small = ["hidden_sizes=[64,64]", "batch_size=64"]
    common = ["sac", env_id, str(EVERY // 2), str(EVERY), "learning_starts=200", *small]
    sides = {
        name: Side(sys.executable, "side_ours.py", [*common, f"checkpoint_interval={interval}"])
        for name, interval in (("with", EVERY), ("without", NEVER))
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    try:
        for number in range(rounds):
            for name in list(sides)[:: 1 if number % 2 else -1]:
                rates[name].append(sides[name].run())
    finally:
        for side in sides.values():
            side.stop()
    ratios = [a / b for a, b in zip(rates["with"], rates["without"], strict=True)]
    return {
        "env_id": env_id,
        "checkpoint_interval": EVERY,
        "steps_per_second_with": statistics.median(rates["with"]),
        "steps_per_second_without": statistics.median(rates["without"]),
        "ratio_median": statistics.median(ratios),
        "ratios": [round(ratio, 4) for ratio in ratios],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    result = compare(args.env, args.rounds)
    print(json.dumps(result, indent=1))
    if args.output:
        write_result(args.output, result)


if __name__ == "__main__":
    main()
