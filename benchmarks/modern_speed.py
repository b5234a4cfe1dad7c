"""Updates per second of CrossQ, SAC with SimBa's networks and FlashSAC against the same written plainly in eager torch.

python benchmarks/modern_speed.py [--device cuda] [--rounds 8] [--tasks crossq simba flashsac] [--output FILE]
Both sides take turns in one process, on HalfCheetah-shaped random transitions that are on the device, with TF32; then 8
seeds as one program, and the kernels that take the time. Settings are those of the packaged configs; CrossQ's critics
are 1,024 wide, the default, and once 2,048, as in its config. The programs are compiled side by side, one process for
each, and measured one after the other.
Writes benchmarks/results/modern-speed-<device>.json. --quick is a dry run with small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from on_policy_device import activities, seconds, table
from provenance import write_result
from side_modern_eager import PLAIN, PlainSimba
from sources import SHAPES, filled_source, updates_per_call
from turns import machine

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import learner_class
from rl_training.cli import load_config
from rl_training.config.fields import parse
from rl_training.core.statistics import bootstrap_interval

# A packaged config and changes of its settings.
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "crossq": ("configs/crossq/halfcheetah.yaml", {"critic_hidden_sizes": [1024, 1024]}),
    "simba": ("configs/sac/humanoid_simba.yaml", {}),
    "flashsac": ("configs/flashsac/halfcheetah.yaml", {}),
    "crossq-2048": ("configs/crossq/halfcheetah.yaml", {}),
}
WANTED = {"crossq": 12, "simba": 12, "flashsac": 6}  # times as fast as written plainly
SEEDS = 8
SMALL = {"batch_size": 8, "hidden_sizes": [8], "critic_hidden_sizes": [8]}
QUICK = {"crossq": SMALL, "flashsac": {**SMALL, "num_atoms": 5}}
QUICK["simba"] = {"batch_size": 8, "network": {"kind": "simba", "hidden_sizes": [8]}}
SPEC = SHAPES["HalfCheetah-v5"]


def method(task: str) -> str:
    """The method of a task: a key of `PLAIN`."""
    return task.partition("-")[0]


def learner_of(task: str, seeds: int, device: str, quick: bool = False) -> Learner:
    """A learner with the settings of the task, small ones for a dry run."""
    path, changes = TASKS[task]
    config, small = load_config(path), QUICK[method(task)] if quick else {}
    cls = learner_class(config.algo)
    settings = parse(cls.settings_type, {**config.algo_kwargs, **changes, **small}, "algo_kwargs")
    return cls.create(SPEC, settings, range(seeds), device=device, compiled=device != "cpu")


def plain_of(task: str, settings: Any, device: str) -> PlainSimba:
    """The same algorithm, written plainly."""
    return PLAIN[method(task)](SPEC.observation.size, SPEC.action.size, settings, device)


def measure(task: str, seeds: int, args: argparse.Namespace) -> dict[str, Any]:
    """The rates of our updates, for one seed beside the plain ones, and profiles. It waits for a line in between."""
    torch.set_float32_matmul_precision("high")
    started = time.perf_counter()
    learner = learner_of(task, seeds, args.device, args.quick)
    settings: Any = learner.settings
    source, count = filled_source(SPEC, settings, seeds, args.device), updates_per_call(settings)

    def ours() -> None:
        learner.train(source, count, learner.update_count)  # as the loop does at one environment step

    plain = plain_of(task, settings, args.device).train if seeds == 1 else None
    for work in (ours, *([plain] if plain is not None else [])):
        seconds(work, args.device, 6 if args.quick else 30)  # every pattern of due phases compiles
    found: dict[str, Any] = {"task": task, "seeds": seeds, "ready_s": round(time.perf_counter() - started, 1)}
    print("ready", flush=True)
    if not sys.stdin.readline():
        raise SystemExit(1)
    calls, plain_calls = (3, 3) if args.quick else (900 // count, 150)
    rates, plain_rates = [], []
    for _ in range(args.rounds):
        rates.append(count / seconds(ours, args.device, calls))
        if plain is not None:
            plain_rates.append(1 / seconds(plain, args.device, plain_calls))
    found |= {"updates_per_s": statistics.median(rates), "rates": [round(rate, 1) for rate in rates]}
    found["seeds_x_updates_per_s"] = seeds * found["updates_per_s"]
    if plain_rates:
        ratios = [own / other for own, other in zip(rates, plain_rates, strict=True)]
        found |= {
            "plain_updates_per_s": statistics.median(plain_rates),
            "ratio": statistics.median(ratios),
            "interval": [round(x, 2) for x in bootstrap_interval(ratios, statistics.median)],
            "ratios": [round(ratio, 2) for ratio in ratios],
        }
    found["profile"] = profile(ours, count, args)
    if plain is not None:
        found["plain_profile"] = profile(plain, 1, args)
    return found


def profile(work: Callable[[], None], count: int, args: argparse.Namespace) -> dict[str, Any]:
    """The largest shares of the device's time, per update."""
    calls = 6 if args.quick else 60
    with torch.profiler.profile(activities=activities(args.device)) as profiled:
        wall = seconds(work, args.device, calls) / count
    shares = table(profiled, args.device, calls * count)
    return {"wall_s_per_update": wall, "busy_s_per_update": shares["busy_s_per_rollout"], "largest": shares["largest"]}


class Part:
    """A process that prepares one measurement and waits for its turn."""

    def __init__(self, task: str, seeds: int, args: argparse.Namespace, others: int) -> None:
        self.name = f"{task}, {seeds} seeds" if seeds > 1 else task
        words = ["--device", args.device, "--rounds", str(args.rounds), *(["--quick"] if args.quick else [])]
        threads = max((os.cpu_count() or 1) // others, 1)
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--part", task, str(seeds), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads)},
        )  # fmt: skip

    def wait(self) -> None:
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline().strip() == "ready"

    def run(self) -> dict[str, Any]:
        """The measurement, or how it failed."""
        if not self.ready:
            return {"error": f"it ended with exit code {self.process.wait()} before it was ready"}
        out, _ = self.process.communicate("go\n")
        if self.process.returncode:
            return {"error": f"it ended with exit code {self.process.returncode}"}
        return dict(json.loads(out.splitlines()[-1]))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def measure_all(args: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every measurement with its name; one that fails is recorded with its error, so that the others are not lost."""
    wanted = [(task, seeds) for task in args.tasks for seeds in (1, SEEDS)]
    parts = [Part(task, seeds, args, len(wanted)) for task, seeds in wanted]
    try:
        for part in parts:
            part.wait()  # all of them: compiling would disturb what is measured
        for part in parts:
            found = part.run()
            shown = {name: value for name, value in found.items() if "profile" not in name}
            print(json.dumps({part.name: shown}), flush=True)
            yield part.name, found
    finally:
        for part in parts:
            part.stop()


def reached(found: dict[str, Any]) -> str:
    """A sentence for each measurement."""
    texts = []
    for name, one in found.items():
        if "ratio" in one:
            text = "{updates_per_s:,.0f} updates per second, plain {plain_updates_per_s:,.0f}: {ratio:.1f} times"
            goal = f" (wanted: >= {WANTED[name]})" if name in WANTED else ""
            texts.append(f"{name} {text.format(**one)}{goal}")
        elif "error" not in one:
            texts.append(f"{name} {one['seeds_x_updates_per_s']:,.0f} seeds x updates per second")
    return "; ".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="a dry run with small sizes")
    parser.add_argument("--part", nargs=2, metavar=("TASK", "SEEDS"), help="one measurement, for this program itself")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if args.part is not None:
        print(json.dumps(measure(args.part[0], int(args.part[1]), args)))
        return
    name = torch.cuda.get_device_name(0) if args.device == "cuda" else "cpu"
    what = "Updates of CrossQ, SAC with SimBa and FlashSAC against the same written plainly in eager torch, TF32"
    output = args.output or Path(__file__).parent / "results" / f"modern-speed-{args.device}.json"
    found: dict[str, Any] = {}
    for part, result in measure_all(args):  # written after each: a run that is cut short keeps what it has
        found[part] = result
        head = {"what": what, "reached": reached(found), "machine": {**machine(), "device": name}}
        write_result(output, {**head, "wanted": WANTED, **found})
    if any("error" in part for part in found.values()):
        raise SystemExit(f"a measurement failed, see {output}")


if __name__ == "__main__":
    main()
