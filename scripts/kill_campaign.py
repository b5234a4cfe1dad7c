"""Kills training at random times, resumes it, and compares the result with an uninterrupted run, for every algorithm.

Each process of a run is `rl-training train` or `rl-training resume`, killed by SIGKILL at a random time until the run
finishes. Its files must then equal those of the uninterrupted run bit by bit, except for times.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from harness import ROOT
from provenance import write_result
from resume_harness import (
    PACKAGES,
    compare_runs,
    environments,
    is_installed,
    make_config,
    run_dir_in,
    start_program,
    write_config,
)

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.checkpoint.read import list_checkpoints
from rl_training.config.train_config import TrainConfig

STEPS = 4000
CHANGES: dict[str, Any] = {
    "total_timesteps": STEPS,
    "log_interval": 71,
    "checkpoint_interval": 103,
    "eval_interval": 997,
}
SETTINGS = {"buffer_capacity": 5000, "learning_starts": 500, "train_frequency": 7}
MAX_SECONDS = 300  # of a run from its last kill to its end


@dataclass
class Kill:
    life: int
    after_s: float
    checkpoint: str | None  # the newest one when the process died
    in_a_save: bool  # it left a checkpoint half written or half removed


@dataclass
class Run:
    algo: str
    env: str
    number: int
    kills: list[Kill] = field(default_factory=list)
    lost: str | None = None
    differences: list[str] = field(default_factory=list)
    tracebacks: int = 0


class Campaign:
    def __init__(self, kills: int, seed: int, jobs: int, directory: Path) -> None:
        self.min_kills, self.seed, self.jobs, self.directory = kills, seed, jobs, directory
        self.lock = threading.Lock()
        self.runs: list[Run] = []
        cases = [(algo, family) for algo in algorithm_names() for family in environments(learner_class(algo))]
        self.cases = [case for case in cases if is_installed(case[1])]
        self.share = math.ceil(kills / len(self.cases))  # of one run, so that the first ones do not use up all kills
        self.references: dict[tuple[str, str], Path] = {}
        self.start_s: dict[tuple[str, str], float] = {}
        self.life_s: dict[tuple[str, str], float] = {}

    @property
    def kills(self) -> int:
        return sum(len(run.kills) for run in self.runs)

    def report(self, text: str) -> None:
        with self.lock:
            print(text, flush=True)

    def run_all(self) -> None:
        self.in_parallel(lambda number: number < len(self.cases), self.reference)
        missing = [case for case in self.cases if case not in self.references]
        if missing:
            raise SystemExit(f"the uninterrupted run of {missing} did not finish; see {self.directory}")
        self.in_parallel(lambda number: self.kills < self.min_kills or number < len(self.cases), self.killed_run)

    def in_parallel(self, more: Any, work: Any) -> None:
        numbers = iter(range(1_000_000))

        def worker() -> None:
            while True:
                with self.lock:
                    number = next(numbers)
                    if not more(number):
                        return
                work(number)

        threads = [threading.Thread(target=worker) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def config(self, case: tuple[str, str]) -> TrainConfig:
        # On the cheapest environments two seeds, and worker processes, which every kill orphans.
        more = {"workers": 2} if case[1] == "classic" else {"seeds": ()}
        return make_config(*case, wanted=SETTINGS, **CHANGES, **more)

    def reference(self, number: int) -> None:
        case = self.cases[number]
        cwd = self.directory / f"whole-{'-'.join(case)}"
        write_config(self.config(case), cwd)
        started = time.monotonic()
        process = start_program(["train", "--config", "config.yaml", "--quiet"], cwd, cwd / "log.txt")
        self.wait_for_a_save(process, cwd)
        self.start_s[case] = time.monotonic() - started
        if process.wait(MAX_SECONDS) == 0:
            self.references[case] = run_dir_in(cwd)
            self.life_s[case] = time.monotonic() - started
            self.report(f"whole  {case[0]:8s} {self.config(case).env_id:20s} {self.life_s[case]:.1f} s")

    def killed_run(self, number: int) -> None:
        case = self.cases[number % len(self.cases)]
        cwd = self.directory / f"killed-{number}"
        config = self.config(case)
        write_config(config, cwd)
        run = Run(case[0], config.env_id, number)
        with self.lock:
            self.runs.append(run)
        rng = random.Random(f"{self.seed} {number}")
        try:
            self.run_with_kills(run, cwd, rng, self.start_s[case])
            run.differences = compare_runs(self.references[case], run_dir_in(cwd))
        except Exception as error:
            run.lost = f"{type(error).__name__}: {error}"
        run.tracebacks = (cwd / "log.txt").read_text().count("Traceback (most recent call last)")
        state = "lost: " + run.lost if run.lost else f"{len(run.differences)} differences"
        self.report(
            f"{self.kills:4d} of {self.min_kills} kills; run {number:3d} {run.algo:8s} {run.env:16s} "
            f"killed {len(run.kills):2d} times, {state}, {run.tracebacks} tracebacks"
        )

    def run_with_kills(self, run: Run, cwd: Path, rng: random.Random, start_s: float) -> None:
        """Run one process after another, each killed if it does not finish first."""
        log = cwd / "log.txt"
        for life in range(1000):
            # A kill before the run directory existed left nothing to resume.
            begun = list(cwd.glob("runs/*/run.json"))
            command = ["resume", str(begun[0].parent)] if begun else ["train", "--config", "config.yaml"]
            process = start_program([*command, "--quiet"], cwd, log)
            started = time.monotonic()
            enough = len(run.kills) >= self.share
            if not enough:
                if rng.random() < 0.3:  # during its start, or while it reads its checkpoint
                    self.wait(process, rng.uniform(0, start_s))
                else:
                    self.wait_for_a_save(process, cwd)
                    self.wait(process, rng.uniform(0, 2))
            if not enough and process.poll() is None:
                process.kill()
                if process.wait() == -signal.SIGKILL:  # else it finished just before
                    run.kills.append(self.describe(life, time.monotonic() - started, cwd, process.pid))
                    continue
            code = process.wait(MAX_SECONDS)
            if code != 0:
                raise RuntimeError(f"life {life} ({command[0]}) exited with {code}; see {log}")
            return

    def wait(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)

    def wait_for_a_save(self, process: subprocess.Popen[bytes], cwd: Path) -> None:
        """Wait until a new checkpoint is saved or the process ends: on a busy machine, starting takes long."""
        before = self.saved(cwd)
        while self.saved(cwd) == before and process.poll() is None:
            time.sleep(0.02)

    def saved(self, cwd: Path) -> list[str]:
        return sorted(path.name for path in cwd.glob("runs/*/checkpoints/step_*"))

    def describe(self, life: int, delay: float, cwd: Path, pid: int) -> Kill:
        roots = list(cwd.glob("runs/*/checkpoints"))
        found = list_checkpoints(roots[0]) if roots else []
        # A folder of a finished rotation, which the next save removes, has no manifest any more.
        patterns = (f".tmp-*-{pid}", f".del-*-{pid}/manifest.json")
        halves = [path for root in roots for pattern in patterns for path in root.glob(pattern)]
        return Kill(life, round(delay, 3), found[-1].name if found else None, bool(halves))

    def kills_per_algorithm(self) -> dict[str, int]:
        return {algo: sum(len(run.kills) for run in self.runs if run.algo == algo) for algo in algorithm_names()}

    def result(self, seconds: float) -> dict[str, Any]:
        kills = [kill for run in self.runs for kill in run.kills]
        return {
            "kills": len(kills),
            "kills_per_algorithm": self.kills_per_algorithm(),
            "kills_in_a_save": sum(kill.in_a_save for kill in kills),
            "kills_before_the_first_checkpoint": sum(kill.checkpoint is None for kill in kills),
            "runs": len(self.runs),
            "lost_runs": sum(run.lost is not None for run in self.runs),
            "unequal_finals": sum(bool(run.differences) for run in self.runs),
            "tracebacks": sum(run.tracebacks for run in self.runs),
            "algorithms": list(algorithm_names()),
            "environments": sorted({run.env for run in self.runs}),
            "seed": self.seed,
            "seconds": round(seconds),
            "steps_per_run": STEPS,
            "uninterrupted_s": {f"{algo} {family}": round(s, 1) for (algo, family), s in self.life_s.items()},
            "each_run": [asdict(run) for run in self.runs],
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time, one a core")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "kill_campaign.json")
    parser.add_argument("--keep", type=Path, help="work in this directory and keep it")
    args = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-campaign-") as temporary:
        for package in (package for family, package in PACKAGES.items() if not is_installed(family)):
            print(f"{package} is not installed: its environments are left out")
        campaign = Campaign(args.kills, args.seed, args.jobs, args.keep or Path(temporary))
        campaign.run_all()
    result = campaign.result(time.monotonic() - started)
    write_result(args.output, result)
    bad = {key: result[key] for key in ("lost_runs", "unequal_finals", "tracebacks")}
    counts = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in bad.items())
    print(f"{result['kills']} kills in {result['runs']} runs of {len(algorithm_names())} algorithms: {counts}")
    spared = [algo for algo, kills in result["kills_per_algorithm"].items() if not kills]
    if spared:
        print(f"never killed: {', '.join(spared)}")
    return int(any(bad.values()) or bool(spared) or result["kills"] < args.kills)


if __name__ == "__main__":
    sys.exit(main())
