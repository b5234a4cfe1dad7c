"""What a trial of `rl-training tune` costs with several seeds against one seed: whole processes that take turns.

python benchmarks/trial_cost.py [--device cuda] [--algo sac] [--steps 10000] [--seeds 8] [--max-seconds 150]

A trial is the process that `tune` starts: imports, compilation, training, an evaluation at every rung, checkpoints. The
first pair compiles into an empty cache, as a trial with other sizes of networks or batches does; later pairs find what
the first one compiled. Pairs are repeated while time is left.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import ROOT, write_result
from turns import environment

MAX_RATIO = 2.0
MAX_ROUNDS = 5
RUNGS = 4


def trial(folder: Path, name: str, seeds: int, args: argparse.Namespace) -> dict[str, float]:
    """Seconds of one trial: the whole process, and its training alone as the run has recorded it."""
    words = ["train", args.algo, args.env, "--seeds", f"0-{seeds - 1}", "--total-timesteps", str(args.steps)]
    words += ["--device", args.device, "--run-name", name, "--eval-episodes", "5", "--quiet", "--json"]
    fixed = [f"eval_interval={args.steps // RUNGS}", "video=false", "report=false", *args.set]
    words += [word for one in fixed for word in ("--set", one)]
    env = {**environment(), "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiled")}
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "rl_training", *words], cwd=folder, env=env, stdout=subprocess.PIPE)
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        raise SystemExit(f"rl-training {' '.join(words)}: exit code {done.returncode}")
    record = json.loads((folder / "runs" / name / "run.json").read_text())
    return {"seconds": round(seconds, 2), "training_s": round(record["elapsed"], 2)}


def measure(folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Pairs of trials in turn, the order alternating, until the next pair would not fit into the time."""
    pairs: list[dict[str, Any]] = []
    begun = time.perf_counter()
    last_s = 0.0
    while not pairs or (len(pairs) < args.max_rounds and time.perf_counter() - begun + last_s <= args.max_seconds):
        started = time.perf_counter()
        sides = [("one", 1), ("many", args.seeds)][:: -1 if len(pairs) % 2 else 1]
        pair: dict[str, Any] = {side: trial(folder, f"{side}-{len(pairs)}", seeds, args) for side, seeds in sides}
        pair["ratio"] = round(pair["many"]["seconds"] / pair["one"]["seconds"], 3)
        pairs.append(pair)
        last_s = time.perf_counter() - started
        print(json.dumps(pair), flush=True)
    return pairs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--max-rounds", type=int, default=MAX_ROUNDS)
    parser.add_argument("--max-seconds", type=float, default=150)
    parser.add_argument("--set", nargs="*", default=[], help="settings of both sides, as after `train --set`")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trial-cost-") as folder:
        pairs = measure(Path(folder), args)
        record = json.loads((Path(folder) / "runs" / "many-0" / "run.json").read_text())
    ratio = statistics.median(pair["ratio"] for pair in pairs)
    verdict = "reached" if ratio <= MAX_RATIO else "not reached"
    result = {
        "what": f"a trial of {args.seeds} seeds against a trial of one seed: {args.algo} on {args.env}, "
        f"{args.steps} steps, whole processes taking turns on {args.device}",
        "reached": f"{verdict}: the median of {len(pairs)} pairs is {ratio:g} times, at most {MAX_RATIO:g} is wanted",
        "ratio": ratio,
        "first_ratio": pairs[0]["ratio"],
        "training_ratio": round(statistics.median(p["many"]["training_s"] / p["one"]["training_s"] for p in pairs), 3),
        "max_ratio": MAX_RATIO,
        "pairs": pairs,
        "execution_plan": record["execution_plan"],
    }
    output = args.output or ROOT / "benchmarks" / "results" / f"trial-cost-{args.device}.json"
    write_result(output, result)
    print(result["reached"])
    return int(ratio > MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
