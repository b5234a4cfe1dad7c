"""Kills Ray workers and a node under a sweep, and compares every run with that of an undisturbed sweep.

A Ray cluster of two local nodes runs the study; workers are killed by SIGKILL at random times, and once a whole node
with everything on it. The files of every run must then equal those of the undisturbed study bit by bit, times aside.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from study_campaign import MAX_SECONDS, ROOT, StudyCampaign, children, kill, reached, write_result

STUDY: dict[str, Any] = {
    "name": "campaign",
    "algorithms": ["dqn", "qr_dqn", "ppo"],
    "environments": ["CartPole-v1"],
    "seeds": [0, 1],
    "seeds_per_run": 1,
    "config": {
        "checkpoint_interval": 50, "log_interval": 50, "eval_episodes": 2, "video": False, "report": False,
        "total_timesteps": 1000, "num_envs": 1,
    },
    "overrides": [
        {"grid": {"gamma": [0.9, 0.95, 0.99, 0.995]}},
        {"grid": {"learning_starts": [200]}, "only": {"algo": ["dqn", "qr_dqn"]}},
        {"grid": {"rollout_steps": [128], "batch_size": [64]}, "only": {"algo": "ppo"}},
    ],
}  # fmt: skip


class Campaign(StudyCampaign):
    def __init__(self, folder: Path, kills: int, seed: int) -> None:
        super().__init__(folder, STUDY)
        self.wanted, self.rng = kills, random.Random(seed)
        self.killed_at: dict[str | None, int] = {}
        self.kills: list[dict[str, Any]] = []
        self.node_kill: dict[str, Any] | None = None

    def disturbed(self) -> tuple[float, int]:
        """The study on a cluster whose workers and one of whose nodes are killed; seconds and exit code."""
        from ray.cluster_utils import Cluster

        os.environ["PYTHONPATH"] = str(ROOT / "src")  # of the workers: this checkout, whatever is installed
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
        nodes = [cluster.head_node, cluster.add_node(num_cpus=2)]
        raylets = [node.all_processes["raylet"][0].process.pid for node in nodes]
        started = time.monotonic()
        program = self.sweep("--launch", "ray", "--address", cluster.address)
        try:
            while program.poll() is None:
                if time.monotonic() - started > MAX_SECONDS:
                    raise SystemExit("the study did not end in time")
                time.sleep(self.rng.uniform(0.2, 2.0))
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
        """Kill a worker whose run has saved since it was last killed; now and then any worker, as one that starts."""
        workers = [pid for pid, line in children(set(raylets)).items() if line.startswith("ray::run_planned")]
        training = self.training()
        if not workers:
            return
        victim = self.rng.choice(sorted(workers))
        name = next((training[pid] for pid in children({victim}) if pid in training), None)
        step = self.study.newest_step(name) if name else 0
        if step <= self.killed_at.get(name, 0) and self.rng.random() < 0.9:
            return
        kill([victim])
        self.killed_at[name] = step
        self.kills.append({"seconds": round(at, 1), "run": name, "checkpoint_step": step})
        print(f"kill {len(self.kills)} at {at:.0f} s: {name} with a checkpoint of step {step}", flush=True)

    def kill_node(self, raylets: list[int], at: float) -> None:
        """Kill the second node, if it runs a task: its raylet and every process below it, as when a machine is lost."""
        lost = children({raylets[1]})
        tasks = sum(line.startswith("ray::run_planned") for line in lost.values())
        if not tasks:
            return
        kill([raylets[1], *lost])
        raylets.pop()
        self.node_kill = {"seconds": round(at, 1), "processes": len(lost) + 1, "running_tasks": tasks}
        print(f"node killed at {at:.0f} s with {tasks} running tasks", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "results" / "ray-campaign.json")
    parser.add_argument("--keep", type=Path, help="work in this directory and keep it")
    args = parser.parse_args()
    import ray

    with tempfile.TemporaryDirectory(prefix="ray-campaign-") as temporary:
        campaign = Campaign(args.keep or Path(temporary), args.kills, args.seed)
        whole = campaign.undisturbed()
        seconds, code = campaign.disturbed()
        differences = campaign.differences()
        unequal = {name: found for name, found in differences.items() if found}
        done = f"{len(campaign.kills)} workers and {int(campaign.node_kill is not None)} node killed"
        result = {
            "what": f"a study of {len(differences)} runs on a Ray cluster of two nodes on one machine, {done}",
            "reached": reached(unequal),
            "runs": len(differences),
            "exit_code": code,
            "worker_kills": len(campaign.kills),
            "kills_of_a_run_with_a_checkpoint": sum(one["checkpoint_step"] > 0 for one in campaign.kills),
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
