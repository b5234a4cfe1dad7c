"""The cost of a Dict observation of one vector over the vector: whole training loops in alternating turns.

python benchmarks/dict_cost.py [--tasks sac dqn] [--rounds 80] [--output FILE]
Both sides wrap the environment alike, and one returns `{"state": obs}`. The ratio is the speed with the Dict over that
with the vector; its interval is a bootstrap over the pairs of turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from old_and_new import ROOT, paired

# Environment, steps before the first turn, steps in a turn, settings: cheap environments, where it shows most.
TASKS: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "sac": ("Pendulum-v1", 400, 60, {"learning_starts": 100}),
    "dqn": ("CartPole-v1", 3000, 400, {"learning_starts": 1000}),
}


def take_turns(algo: str, kind: str) -> None:
    """A process of one side: train, and wait for a line on stdin between turns."""
    from pacer import Pacer

    import rl_training  # isort: skip  before gymnasium and numpy: it chooses how they round
    import gymnasium as gym

    from rl_training.experiment.registry import get_algorithm_spec

    env_id, warm_up, turn, settings = TASKS[algo]
    by_key = kind == "dict"

    class Wrapped(gym.ObservationWrapper[Any, Any, Any]):
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            space = env.observation_space
            self.observation_space = gym.spaces.Dict(state=space) if by_key else space

        def observation(self, observation: Any) -> Any:
            return {"state": observation} if by_key else observation

    pacer = Pacer(warm_up, turn, lambda: None)
    with tempfile.TemporaryDirectory() as folder:
        config = rl_training.TrainConfig(
            algo, "<wrapped>", total_timesteps=1_000_000, output_dir=Path(folder), eval_episodes=0, compile="off",
            checkpoint_interval=10_000_000, device="cpu", threads=1, algo_kwargs=settings,
        )  # fmt: skip
        get_algorithm_spec(algo).train_fn(
            config, None, lambda session: pacer.step(), lambda **kwargs: Wrapped(gym.make(env_id, **kwargs)), False
        )


def start(algo: str, kind: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--side", algo, kind]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None and process.stdout.readline() == "ready\n", f"{kind} did not start"
    return process


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rounds", type=int, default=80)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        take_turns(*args.side)
        return
    found = []
    for algo in args.tasks:
        sides = {kind: start(algo, kind) for kind in ("vector", "dict")}
        found.append({"algo": algo, "env_id": TASKS[algo][0], **paired(sides, args.rounds)})
        print(json.dumps({name: value for name, value in found[-1].items() if name != "ratios"}), flush=True)
    if args.output:
        from provenance import write_result

        reached = ", ".join(f"{one['algo']} {one['ratio']:.3f} {one['interval']}" for one in found)
        what = "training speed with a Dict observation of one vector over that with the vector"
        what += f", whole loops on one CPU core, {args.rounds} interleaved pairs (wanted: >= 0.95)"
        write_result(args.output, {"what": what, "reached": reached, "tasks": found})


if __name__ == "__main__":
    main()
