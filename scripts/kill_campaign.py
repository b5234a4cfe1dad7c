"""Kill training at random, resume it, and compare the end with a run that nobody killed: over every algorithm.

Each life of a run is `rl-training train` or `rl-training resume` in a process of its own, killed from outside (SIGKILL)
at a random time; a run lives until it finishes. It must then equal the uninterrupted run bit by bit, the clock aside.
"""

from __future__ import annotations

import argparse
import contextlib
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
WANTED = {"buffer_capacity": 5000, "learning_starts": 500, "train_frequency": 7}
LONGEST = 300  # seconds a run may need from its last kill to its end


@dataclass
class Kill:
    life: int
    after_s: float
    checkpoint: str | None  # the newest one when the process died
    in_a_save: bool  # it left a half-written or half-removed checkpoint behind


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
        self.wanted, self.seed, self.jobs, self.directory = kills, seed, jobs, directory
        self.lock = threading.Lock()
        self.runs: list[Run] = []
        cases = [(algo, family) for algo in algorithm_names() for family in environments(learner_class(algo))]
        self.cases = [case for case in cases if is_installed(case[1])]
        self.references: dict[tuple[str, str], Path] = {}
        self.start_s: dict[tuple[str, str], float] = {}
        self.life_s: dict[tuple[str, str], float] = {}

    @property
    def kills(self) -> int:
        return sum(len(run.kills) for run in self.runs)

    def say(self, text: str) -> None:
        with self.lock:
            print(text, flush=True)

    def run_all(self) -> None:
        self.in_parallel(lambda number: number < len(self.cases), self.reference)
        missing = [case for case in self.cases if case not in self.references]
        if missing:
            raise SystemExit(f"the uninterrupted run of {missing} did not finish; see {self.directory}")
        self.in_parallel(lambda number: self.kills < self.wanted or number < len(self.cases), self.killed_run)

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
        # On the cheapest environments two seeds, and a worker process that every kill orphans.
        more = {"workers": 2} if case[1] == "classic" else {"seeds": ()}
        return make_config(*case, wanted=WANTED, **CHANGES, **more)

    def reference(self, number: int) -> None:
        case = self.cases[number]
        cwd = self.directory / f"whole-{'-'.join(case)}"
        write_config(self.config(case), cwd)
        began = time.monotonic()
        process = start_program(["train", "--config", "config.yaml", "--quiet"], cwd, cwd / "log.txt")
        self.wait_for_a_save(process, cwd)
        self.start_s[case] = time.monotonic() - began
        if process.wait(LONGEST) == 0:
            self.references[case] = run_dir_in(cwd)
            self.life_s[case] = time.monotonic() - began
            self.say(f"whole  {case[0]:8s} {self.config(case).env_id:20s} {self.life_s[case]:.1f} s")

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
            self.live(run, cwd, rng, self.start_s[case])
            run.differences = compare_runs(self.references[case], run_dir_in(cwd))
        except Exception as error:
            run.lost = f"{type(error).__name__}: {error}"
        run.tracebacks = (cwd / "log.txt").read_text().count("Traceback (most recent call last)")
        state = "lost: " + run.lost if run.lost else f"{len(run.differences)} differences"
        self.say(
            f"{self.kills:4d} of {self.wanted} kills; run {number:3d} {run.algo:8s} {run.env:16s} "
            f"killed {len(run.kills):2d} times, {state}, {run.tracebacks} tracebacks"
        )

    def live(self, run: Run, cwd: Path, rng: random.Random, start_s: float) -> None:
        """One process after another, each killed if it does not finish first."""
        log = cwd / "log.txt"
        for life in range(1000):
            # A kill so early that there was no run yet left nothing to resume.
            begun = list(cwd.glob("runs/*/run.json"))
            words = ["resume", str(begun[0].parent)] if begun else ["train", "--config", "config.yaml"]
            process = start_program([*words, "--quiet"], cwd, log)
            began = time.monotonic()
            enough = self.kills >= self.wanted and run.kills  # what is left may finish in peace
            if not enough:
                if rng.random() < 0.3:  # while it starts, or reads its checkpoint
                    self.wait(process, rng.uniform(0, start_s))
                else:
                    self.wait_for_a_save(process, cwd)
                    self.wait(process, rng.uniform(0, 2))
            if not enough and process.poll() is None:
                process.kill()
                if process.wait() == -signal.SIGKILL:  # else it came to its end just before
                    run.kills.append(self.describe(life, time.monotonic() - began, cwd, process.pid))
                    continue
            code = process.wait(LONGEST)
            if code != 0:
                raise RuntimeError(f"life {life} ({words[0]}) exited with {code}; see {log}")
            return

    def wait(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)

    def wait_for_a_save(self, process: subprocess.Popen[bytes], cwd: Path) -> None:
        """Until it has got somewhere: a machine that is busy takes its time to start."""
        before = self.saved(cwd)
        while self.saved(cwd) == before and process.poll() is None:
            time.sleep(0.02)

    def saved(self, cwd: Path) -> list[str]:
        return sorted(path.name for path in cwd.glob("runs/*/checkpoints/step_*"))

    def describe(self, life: int, delay: float, cwd: Path, pid: int) -> Kill:
        roots = list(cwd.glob("runs/*/checkpoints"))
        found = list_checkpoints(roots[0]) if roots else []
        # What a finished rotation leaves for the next save has no manifest any more.
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
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kill-campaign-") as temporary:
        for package in (package for family, package in PACKAGES.items() if not is_installed(family)):
            print(f"{package} is not installed: its environments are left out")
        campaign = Campaign(options.kills, options.seed, options.jobs, options.keep or Path(temporary))
        campaign.run_all()
    result = campaign.result(time.monotonic() - began)
    write_result(options.output, result)
    bad = {key: result[key] for key in ("lost_runs", "unequal_finals", "tracebacks")}
    counts = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in bad.items())
    print(f"{result['kills']} kills in {result['runs']} runs of {len(algorithm_names())} algorithms: {counts}")
    spared = [algo for algo, kills in result["kills_per_algorithm"].items() if not kills]
    if spared:
        print(f"never killed: {', '.join(spared)}")
    return int(any(bad.values()) or bool(spared) or result["kills"] < options.kills)


if __name__ == "__main__":
    sys.exit(main())
