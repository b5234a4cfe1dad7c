"""Tunes PPO on Pendulum with a small budget, and compares the best config with the packaged one on fresh seeds.

Both are trained with the same budget on 16 seeds that no trial used; the probability of improvement has a bootstrap
interval over seeds. A loss is reported as one.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from provenance import ROOT, write_result
from turns import environment

from rl_training.core.statistics import improvement_interval, probability_of_improvement, summarize

STUDY = ROOT / "examples" / "studies" / "ppo_pendulum_tune.yaml"
SEEDS = "100-115"
STEPS = 10_000


def program(cwd: Path, *words: str) -> str:
    command = [sys.executable, "-m", "rl_training", *words]
    done = subprocess.run(command, cwd=cwd, env=environment(), stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit(f"rl-training {' '.join(words)}: exit code {done.returncode}")
    return done.stdout.decode()


def returns(cwd: Path, *words: str) -> list[float]:
    """The mean return of each seed in the last evaluation of a run."""
    options = ["--seeds", SEEDS, "--total-timesteps", str(STEPS), "--eval-episodes", "20", "--json", "--quiet"]
    unneeded = ["--set", "video=false", "--set", "report=false", "--set", "compile=off"]
    answer = json.loads(program(cwd, "train", *words, *options, *unneeded))
    return [float(one) for one in answer["metrics"]["eval_return_means"]]


def _verdict(low: float, high: float) -> str:
    """What an interval of the probability of improvement shows."""
    return "better" if low > 0.5 else "worse" if high < 0.5 else "no difference shown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "tune-ppo-pendulum.json")
    parser.add_argument("--keep", type=Path, help="work in this directory and keep it")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tune-") as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        started = time.monotonic()
        words = ["tune", str(STUDY), "--best", "best.yaml", "--jobs", str(args.jobs), "--json"]
        found = json.loads(program(folder, *words))
        tuned_s = time.monotonic() - started
        sides = [("--config", "best.yaml", "--run-name", "tuned"), ("ppo", "Pendulum-v1", "--run-name", "packaged")]
        with ThreadPoolExecutor(args.jobs) as pool:
            tuned, packaged = pool.map(lambda words: returns(folder, *words), sides)
        best = (folder / "best.yaml").read_text()
    scores = [np.asarray(tuned)], [np.asarray(packaged)]
    low, high = improvement_interval(*scores)
    trials, pruned = len(found["trials"]), sum(one["state"] == "pruned" for one in found["trials"])
    chance, verdict = float(probability_of_improvement(*scores)), _verdict(low, high)
    result = {
        "what": f"PPO tuned on Pendulum-v1: {trials} trials of {STEPS} steps, {pruned} pruned; the best config beside "
        f"the packaged one on {len(tuned)} seeds that no trial used",
        "reached": f"{verdict}: a tuned run is the better one with probability {chance:.2f} [{low:.2f}, {high:.2f}]",
        "steps": STEPS,
        "trials": trials,
        "pruned": pruned,
        "tuning_s": round(tuned_s),
        "seeds": SEEDS,
        "probability_of_improvement": chance,
        "interval_95": [low, high],
        "verdict": verdict,
        "tuned": {**summarize(tuned), "returns": tuned},
        "packaged": {**summarize(packaged), "returns": packaged},
        "best_config": best,
        "importance": found["importance"],
    }
    write_result(args.output, result)
    with args.output.with_suffix(".csv").open("w") as file:
        names = list(dict.fromkeys(key for row in found["trials"] for key in row))
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(found["trials"])
    print(json.dumps({key: result[key] for key in ("probability_of_improvement", "interval_95", "verdict")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
