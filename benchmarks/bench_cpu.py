"""Environment steps per second, end to end, taking turns with stable-baselines3 on the same cores.

python benchmarks/bench_cpu.py --peer-python PATH [--rounds 8] [--output FILE]
The peer lives in its own virtual environment (`make bench-cpu` makes it).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# name: (algorithm, environment, our settings, the peer's settings), as close to each other as the two allow
TASKS = {
    "sac-halfcheetah": (
        "sac", "HalfCheetah-v5",
        ["learning_starts=200", "batch_size=256", "hidden_sizes=[256,256]", "buffer_capacity=1000000"],
        ["learning_starts=200", "batch_size=256", "buffer_size=1000000"],
    ),
    "dqn-cartpole": (
        "dqn", "CartPole-v1",
        ["learning_starts=200", "batch_size=64", "hidden_sizes=[64,64]", "train_frequency=1",
         "gradient_updates_per_step=1", "buffer_capacity=100000"],
        ["learning_starts=200", "batch_size=64", "train_freq=1", "gradient_steps=1", "buffer_size=100000"],
    ),
}  # fmt: skip


class Side:
    def __init__(self, python: str, script: str, words: list[str]) -> None:
        env = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
        self.process = subprocess.Popen(
            [python, str(HERE / script), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "ready", f"{script} did not start"

    def run(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(task: str, peer_python: str, rounds: int, stretch: int) -> dict[str, object]:
    algo, env_id, ours, theirs = TASKS[task]
    common = [algo, env_id, "400", str(stretch)]
    sides = [
        Side(sys.executable, "side_ours.py", [*common, *ours]),
        Side(peer_python, "side_sb3.py", [*common, *theirs]),
    ]
    try:
        pairs = [(sides[0].run(), sides[1].run()) for _ in range(rounds)]
    finally:
        for side in sides:
            side.stop()
    ratios = [a / b for a, b in pairs]
    return {
        "task": task,
        "ours_steps_per_s": statistics.median(a for a, _ in pairs),
        "sb3_steps_per_s": statistics.median(b for _, b in pairs),
        "ratio_median": statistics.median(ratios),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--stretch", type=int, default=400)
    parser.add_argument("--output", type=Path)
    words = parser.parse_args()
    results = {"machine": {"platform": platform.platform(), "cores": os.cpu_count()}, "comparisons": []}
    for task in words.tasks:
        result = compare(task, words.peer_python, words.rounds, words.stretch)
        results["comparisons"].append(result)  # type: ignore[attr-defined]
        print(json.dumps(result), flush=True)
    if words.output:
        words.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
