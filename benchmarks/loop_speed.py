"""Environment steps per second of the off-policy loop, and where a step's time goes.

python benchmarks/loop_speed.py [--algo sac] [--env HalfCheetah-v5] [--device cuda] [--seeds 1 16] [--steps 20000]
                                [--output benchmarks/results/loop-speed-cuda.json]
A run of `warm` + `steps` steps (of each seed) for every number of seeds: the rate between the two marks, without
compilation and evaluation; then the same number of steps with the parts of a step timed one by one, on the host.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from provenance import write_result

from rl_training.cli import load_config
from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.run.callbacks import Callback
from rl_training.run.session import Session

# What the loop calls in a step: the object's path from the session, the method, the name of the part.
PARTS = (
    ("agent.learner", "act_collect", "acting, with the wait for the GPU"),
    ("agent.learner", "train", "launching the updates"),
    ("envs", "step", "environments"),
    ("envs", "advance", "new episodes"),
    ("replay", "add", "handing over the transitions"),
)


class Marks(Callback):
    """Times the steps between `warm` and the end; in the second half the parts are timed, which costs a little."""

    def __init__(self, warm: int, steps: int) -> None:
        self.warm, self.half = warm, warm + steps // 2
        self.times: dict[int, float] = {}
        self.parts: dict[str, float] = defaultdict(float)

    def on_step(self, session: Session) -> None:
        step = session.clock.step
        if step in (self.warm, self.half):
            _finish(session)
            self.times[step] = time.perf_counter()
        if step == self.half:
            for path, method, name in PARTS:
                owner: Any = session
                for attribute in path.split("."):
                    owner = getattr(owner, attribute)
                setattr(owner, method, self._timed(getattr(owner, method), name))

    def on_end(self, session: Session) -> None:
        _finish(session)
        self.times[-1] = time.perf_counter()

    def _timed(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                self.parts[name] += time.perf_counter() - start

        return timed


def _finish(session: Session) -> None:
    if session.agent.learner.device.type == "cuda":
        torch.cuda.synchronize()


def measure(args: argparse.Namespace, seeds: int) -> dict[str, Any]:
    marks = Marks(args.warm, args.steps)
    settings = ["video=false", "compile=on", "log_interval=5000", "checkpoint_interval=1000000000", *args.set]
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(
            f"configs/{args.algo}/halfcheetah.yaml", settings, output_dir=folder, device=args.device, env_id=args.env,
            seeds=list(range(seeds)), total_timesteps=args.warm + args.steps, eval_episodes=0,
        )  # fmt: skip
        begun = time.perf_counter()
        get_algorithm_spec(config.algo).train_fn(config, None, [marks])
    steps = args.steps // 2
    plain, timed = marks.times[marks.half] - marks.times[args.warm], marks.times[-1] - marks.times[marks.half]
    parts = {name: 1e6 * seconds / steps for name, seconds in marks.parts.items()}
    return {
        "seeds": seeds,
        "steps_per_s": seeds * steps / plain,
        "microseconds_per_vector_step": 1e6 * plain / steps,
        "timed": {
            "microseconds_per_vector_step": 1e6 * timed / steps,
            "parts": parts,
            "rest": 1e6 * timed / steps - sum(parts.values()),
        },
        "seconds_to_the_first_mark": marks.times[args.warm] - begun,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--warm", type=int, default=12_000, help="steps before the first mark, with random actions")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--set", nargs="*", default=[])
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows = []
    for seeds in args.seeds:
        rows.append(measure(args, seeds))
        print(rows[-1], flush=True)
    reached = "; ".join(
        f"{row['seeds']} seeds {row['steps_per_s']:,.0f} steps per second ({row['microseconds_per_vector_step']:.0f} "
        "microseconds a vector step)"
        for row in rows
    )
    if args.output is not None:
        what = f"environment steps per second of {args.algo} on {args.env} in the loop, all seeds together"
        write_result(args.output, {"what": what, "reached": reached, "rows": rows})


if __name__ == "__main__":
    main()
