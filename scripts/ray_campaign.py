"""Kills Ray workers and a node under a sweep, and compares every run with that of an undisturbed sweep.

A Ray cluster of two local nodes runs the study; workers are killed by SIGKILL at random times, and once a whole node
with everything on it. The files of every run must then equal those of the undisturbed study bit by bit, times aside.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from harness import ROOT
from provenance import write_result
from resume_harness import compare_runs

from rl_training.config.yaml_loading import dump_yaml
from rl_training.studies.folder import StudyFolder

STUDY: dict[str, Any] = {
    "name": "campaign",
    "algorithms": ["dqn", "qr_dqn", "ppo"],
    "environments": ["CartPole-v1"],
    "seeds": [0, 1],
    "seeds_per_run": 1,
    "config": {
        "checkpoint_interval": 150, "log_interval": 150, "eval_episodes": 2, "video": False, "report": False,
        "total_timesteps": 3000, "num_envs": 1,
    },
    "overrides": [
        {"grid": {"gamma": [0.9, 0.95, 0.99, 0.995]}},
        {"grid": {"learning_starts": [200]}, "only": {"algo": ["dqn", "qr_dqn"]}},
        {"grid": {"rollout_steps": [128]}, "only": {"algo": "ppo"}},
    ],
}  # fmt: skip
MAX_SECONDS = 1500


def sweep(cwd: Path, *options: str) -> subprocess.Popen[bytes]:
    """`rl-training sweep` in a folder, with its lines in a log."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with (cwd / "log.txt").open("ab") as log:
        words = [sys.executable, "-m", "rl_training", "sweep", "study.yaml", *options]
        return subprocess.Popen(words, cwd=cwd, env=env, stdout=log, stderr=log)


def children(parents: set[int]) -> dict[int, str]:
    """Every process below some processes, with its command line."""
    found: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = (parent, (path / "cmdline").read_text().replace("\0", " "))
    below: dict[int, str] = {}
    new = set(parents)
    while new:
        new = {pid for pid, (parent, _) in found.items() if parent in new and pid not in below}
        below |= {pid: found[pid][1] for pid in new}
    return below


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Campaign:
    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        self.folder, self.wanted, self.rng = folder, kills, random.Random(seed)
        self.study = StudyFolder(folder / "studies" / STUDY["name"])
        self.kills: list[dict[str, Any]] = []
        self.node_kill: dict[str, Any] | None = None

    def undisturbed(self) -> float:
        """The same study without kills; its folder is moved aside, so that all paths in the files are equal."""
        started = time.monotonic()
        if sweep(self.folder, "--jobs", "2").wait(MAX_SECONDS) != 0:
            raise SystemExit(f"the undisturbed study failed; see {self.folder / 'log.txt'}")
        shutil.move(self.study.path, self.folder / "undisturbed")
        return time.monotonic() - started

    def disturbed(self) -> tuple[float, int]:
        """The study on a cluster whose workers and one of whose nodes are killed; seconds and exit code."""
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        nodes = [cluster.head_node, cluster.add_node(num_cpus=2)]
        raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
        started = time.monotonic()
        program = sweep(self.folder, "--launch", "ray", "--address", cluster.address)
        try:
            while program.poll() is None:
                if time.monotonic() - started > MAX_SECONDS:
                    raise SystemExit("the study did not end in time")
                time.sleep(self.rng.uniform(0.5, 4.0))
                if len(self.kills) < self.wanted:
                    self.kill_worker(raylets, time.monotonic() - started)
                if len(self.kills) >= self.wanted // 2 and self.node_kill is None:
                    self.kill_node(raylets, time.monotonic() - started)
            return time.monotonic() - started, program.returncode
        finally:
            if program.poll() is None:
                program.kill()
            cluster.shutdown()

    def kill_worker(self, raylets: list[int], at: float) -> None:
        workers = [pid for pid, line in children(set(raylets)).items() if line.startswith("ray::run_part")]
        if workers:
            victim = self.rng.choice(sorted(workers))
            running = [line for line in children({victim}).values() if "rl_training" in line]
            name = running[0].split("/")[-1].split()[0].removesuffix(".yaml") if running else None
            step = self.study.newest_step(name) if name else None
            kill([victim])
            self.kills.append({"seconds": round(at, 1), "run": name, "checkpoint_step": step})
            print(f"kill {len(self.kills)} at {at:.0f} s: {name} with a checkpoint of step {step}", flush=True)

    def kill_node(self, raylets: list[int], at: float) -> None:
        """Kill the second node: its raylet and every process below it, as when a machine is lost."""
        lost = children({raylets[1]})
        kill([raylets[1], *lost])
        tasks = sum(line.startswith("ray::run_part") for line in lost.values())
        raylets.pop()
        self.node_kill = {"seconds": round(at, 1), "processes": len(lost) + 1, "running_tasks": tasks}
        print(f"node killed at {at:.0f} s with {tasks} running tasks", flush=True)

    def compare(self) -> dict[str, list[str]]:
        """What differs, by run."""
        names = [name for name, _ in self.study.parts()]
        aside = self.folder / "undisturbed" / "runs"
        return {name: compare_runs(aside / name, self.study.run_dir(name)) for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "ray-campaign.json")
    parser.add_argument("--keep", type=Path, help="work in this directory and keep it")
    args = parser.parse_args()
    import ray

    with tempfile.TemporaryDirectory(prefix="ray-campaign-") as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.yaml").write_text(dump_yaml(STUDY))
        campaign = Campaign(folder, args.kills, args.seed)
        whole = campaign.undisturbed()
        seconds, code = campaign.disturbed()
        differences = campaign.compare()
        unequal = {name: found for name, found in differences.items() if found}
        result = {
            "runs": len(differences),
            "exit_code": code,
            "worker_kills": len(campaign.kills),
            "kills_of_a_run_with_a_checkpoint": sum(bool(one["checkpoint_step"]) for one in campaign.kills),
            "node_kill": campaign.node_kill,
            "unequal_runs": unequal,
            "undisturbed_s": round(whole),
            "disturbed_s": round(seconds),
            "each_kill": campaign.kills,
            "ray": ray.__version__,
            "study": STUDY,
        }
    write_result(args.output, result)
    print(f"{len(campaign.kills)} kills of workers, 1 of a node, {len(differences)} runs, {len(unequal)} unequal")
    return int(bool(unequal) or code != 0 or len(campaign.kills) < args.kills or campaign.node_kill is None)


if __name__ == "__main__":
    sys.exit(main())
