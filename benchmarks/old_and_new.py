"""Training speed of this checkout against another one: whole training loops in alternating turns.

python benchmarks/old_and_new.py OTHER_CHECKOUT [--tasks sac dqn iql] [--device cpu] [--rounds 20] [--output FILE]
The ratio is new over old; its interval is a bootstrap over the pairs of turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# Environment, steps before the first turn, steps in a turn, settings.
TASKS: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "sac": ("HalfCheetah-v5", 400, 150, {"learning_starts": 100}),
    "dqn": ("CartPole-v1", 3000, 1500, {"learning_starts": 1000}),
    "iql": ("Pendulum-v1", 400, 200, {}),
}
GPU_STEPS = {"sac": (600, 800)}  # before the first turn, in a turn


def take_turns(algo: str, device: str, compiled: str) -> None:
    """A process of one checkout: train, and wait for a line on stdin between turns."""
    from pacer import Pacer

    import rl_training
    from rl_training.experiment.registry import get_algorithm_spec

    env_id, warm_up, turn, settings = TASKS[algo]
    finish: Any = lambda: None  # noqa: E731
    if device != "cpu":
        import torch

        finish, (warm_up, turn) = torch.cuda.synchronize, GPU_STEPS[algo]
    pacer = Pacer(warm_up, turn, finish)
    with tempfile.TemporaryDirectory() as folder:
        config = rl_training.TrainConfig(
            algo, env_id, total_timesteps=1_000_000, output_dir=Path(folder), eval_episodes=0, compile=compiled,
            checkpoint_interval=10_000_000, device=device, threads=1, algo_kwargs=settings,
        )  # fmt: skip
        get_algorithm_spec(algo).train_fn(config, callbacks=lambda session: pacer.step(), show_progress=False)


def start(checkout: Path, algo: str, device: str, compiled: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(checkout / "src"), *filter(None, [os.environ.get("PYTHONPATH_SITE")])])
    command = [sys.executable, __file__, "--side", algo, device, compiled]
    env = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None and process.stdout.readline() == "ready\n", f"{checkout} did not start"
    return process


def one_turn(process: subprocess.Popen[str]) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compare(old: Path, algo: str, device: str, compiled: str, rounds: int) -> dict[str, Any]:
    sides = {"old": start(old, algo, device, compiled), "new": start(ROOT, algo, device, compiled)}
    return {"algo": algo, "device": device, "compile": compiled, **paired(sides, rounds)}


def paired(sides: dict[str, subprocess.Popen[str]], rounds: int) -> dict[str, Any]:
    """The rates of two processes that take turns; the ratio is the second's over the first's."""
    first, second = sides
    rates: dict[str, list[float]] = {first: [], second: []}
    for number in range(rounds):
        for name in (first, second) if number % 2 else (second, first):
            rates[name].append(one_turn(sides[name]))
    for process in sides.values():
        process.kill()
    ratios = [after / before for after, before in zip(rates[second], rates[first], strict=True)]
    draw = random.Random(0)
    means = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(4000))
    return {
        "steps_per_s": {name: round(statistics.median(values), 1) for name, values in rates.items()},
        "ratio": round(statistics.median(ratios), 4),
        "interval": [round(means[100], 4), round(means[3899], 4)],
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("old", nargs="?", type=Path, help="another checkout")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", default="off", choices=["on", "off"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        take_turns(*args.side)
        return
    found = []
    for algo in args.tasks:
        found.append(compare(args.old, algo, args.device, args.compile, args.rounds))
        print(json.dumps({name: value for name, value in found[-1].items() if name != "ratios"}), flush=True)
    if args.output:
        from provenance import write_result

        reached = ", ".join(f"{one['algo']} {one['ratio']:.3f} {one['interval']}" for one in found)
        what = f"whole training loops of this checkout against another one, {args.device}, compile {args.compile}"
        write_result(args.output, {"what": what, "reached": reached, "tasks": found})


if __name__ == "__main__":
    main()
