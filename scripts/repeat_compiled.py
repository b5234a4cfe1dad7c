"""Checks that compiled runs on a GPU are reproducible: pairs of runs, each with its own compile cache.

python scripts/repeat_compiled.py [--algos rainbow_dqn drq] [--pairs 5] [--jobs 8] [--output FILE]
Exit 1 if two runs of the same config end with different weights.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def run_once(algo: str, device: str) -> str:
    """Train one short compiled run, and digest its learner's tensors."""
    sys.path[:0] = [str(ROOT / "tests")]
    from conftest import make_quick_config

    from rl_training.algorithms.registry import learner_class
    from rl_training.checkpoint.read import load_checkpoint
    from rl_training.run.run import train

    settings = {"normalize_observations": learner_class(algo).observations != ("image",)}
    with tempfile.TemporaryDirectory() as folder:
        config = make_quick_config(
            algo, Path(folder), settings, device=device, compile="on", total_timesteps=137, checkpoint_interval=61
        )
        tensors = load_checkpoint(train(config, show_progress=False).checkpoint_path).tensors("learner.safetensors")
    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(name.encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def start_one(algo: str, device: str) -> str:
    """`run_once` in a new process, which compiles everything again."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": f"{cache}/triton"}
        command = [sys.executable, __file__, "--one", algo, "--device", device]
        answer = subprocess.run(command, env=env, capture_output=True, text=True)
    if answer.returncode:
        raise SystemExit(f"{algo}: exit {answer.returncode}\n{answer.stderr[-2000:]}")
    return answer.stdout.split()[-1]


def repeat(algos: list[str], pairs: int, jobs: int, device: str) -> dict[str, Any]:
    with ThreadPoolExecutor(jobs) as pool:
        futures = {algo: [pool.submit(start_one, algo, device) for _ in range(2 * pairs)] for algo in algos}
        digests = {algo: [one.result()[:16] for one in runs] for algo, runs in futures.items()}
    agreeing = {
        algo: sum(first == second for first, second in zip(runs[::2], runs[1::2], strict=True))
        for algo, runs in digests.items()
    }
    return {"pairs": pairs, "jobs": jobs, "device": device, "agreeing_pairs": agreeing, "digests": digests}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algos", nargs="+", default=["rainbow_dqn", "drq"])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", type=Path, help="the result as JSON, with its commit, versions and command")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(run_once(args.one, args.device))
        return 0
    result = repeat(args.algos, args.pairs, args.jobs, args.device)
    print(json.dumps(result))
    if args.output:
        sys.path[:0] = [str(ROOT / "benchmarks")]
        from provenance import write_result

        write_result(args.output, result)
    return 0 if all(count == args.pairs for count in result["agreeing_pairs"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
