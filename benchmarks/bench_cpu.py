"""Training speed against other libraries, which take turns on the same cores.

python benchmarks/bench_cpu.py --peer-python PATH [--tasks NAME...] [--rounds 8] [--output FILE]
Online algorithms are measured end to end, in environment steps; offline ones by their updates on random data.
The peers have their own virtual environments (`make bench-cpu` creates them).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from provenance import write_result

from rl_training.core.statistics import bootstrap_interval

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Peer:
    library: str
    algo: str
    settings: list[str]
    script: str = "side_sb3.py"
    python: str | None = None  # its interpreter; None: --peer-python


@dataclass(frozen=True)
class Task:
    """The same work for both sides, as far as possible."""

    algo: str
    env_id: str
    settings: list[str]
    peers: list[Peer]
    stretch: int = 400  # steps per turn
    script: str = "side_ours.py"  # or side_learner.py: updates only
    warm_up: int = 400  # steps before the first turn


COMMON = ["learning_starts=200", "batch_size=256"]  # the same names on both sides
TASKS = {
    "sac-halfcheetah": Task(
        "sac", "HalfCheetah-v5", [*COMMON, "hidden_sizes=[256,256]", "buffer_capacity=1000000"],
        [Peer("stable_baselines3", "SAC", [*COMMON, "buffer_size=1000000"])],
    ),
    "dqn-cartpole": Task(
        "dqn", "CartPole-v1",
        ["learning_starts=200", "batch_size=64", "hidden_sizes=[64,64]", "train_frequency=1",
         "gradient_updates_per_step=1", "buffer_capacity=100000"],
        [Peer("stable_baselines3", "DQN",
              ["learning_starts=200", "batch_size=64", "train_freq=1", "gradient_steps=1", "buffer_size=100000"])],
    ),
    "qr_dqn-cartpole": Task(
        "qr_dqn", "CartPole-v1",
        ["learning_starts=200", "batch_size=64", "hidden_sizes=[64,64]", "train_frequency=1",
         "gradient_updates_per_step=1", "buffer_capacity=100000", "num_quantiles=200", "max_grad_norm=null"],
        [Peer("sb3_contrib", "QRDQN",
              ["learning_starts=200", "batch_size=64", "train_freq=1", "gradient_steps=1", "buffer_size=100000",
               'policy_kwargs={"n_quantiles":200,"net_arch":[64,64]}'])],
    ),
    "tqc-halfcheetah": Task(
        "tqc", "HalfCheetah-v5",
        [*COMMON, "hidden_sizes=[256,256]", "critic_hidden_sizes=[256,256]", "num_critics=2", "num_quantiles=25",
         "top_quantiles_to_drop_per_net=2"],
        [Peer("sb3_contrib", "TQC", [*COMMON, "top_quantiles_to_drop_per_net=2",
                                     'policy_kwargs={"n_critics":2,"n_quantiles":25,"net_arch":[256,256]}'])],
    ),
    "redq-hopper": Task(
        "redq", "Hopper-v5",
        [*COMMON, "hidden_sizes=[256,256]", "num_critics=10", "subset_size=2", "gradient_updates_per_step=20"],
        [
            # SBX has no REDQ; its SAC with ten critics evaluates all ten in the target.
            Peer("sbx", "SAC", [*COMMON, "gradient_steps=20", "policy_delay=20",
                                'policy_kwargs={"n_critics":10,"net_arch":[256,256]}']),
            Peer("tianshou", "REDQ", [*COMMON, "ensemble_size=10", "subset_size=2", "updates_per_step=20"],
                 "side_tianshou.py"),
        ],
        stretch=20, warm_up=230,  # of 20 updates each
    ),
}  # fmt: skip
NETWORKS = ["batch_size=256", "hidden_sizes=[256,256]"]
OFFLINE = {
    name: Task(
        algo, "HalfCheetah-v5", [*NETWORKS, *settings],
        [Peer("d3rlpy", peer, [*NETWORKS, *settings], "side_d3rlpy.py")],
        stretch=stretch, script="side_learner.py", warm_up=100,
    )
    for name, algo, peer, settings, stretch in (
        ("iql-halfcheetah", "iql", "IQL", [], 400),
        ("td3_bc-halfcheetah", "td3_bc", "TD3PlusBC", [], 400),
        ("cql-halfcheetah", "cql", "CQL", ["num_cql_samples=10"], 60),
    )
}  # fmt: skip


class Side:
    """A process of one library that runs its turns on request."""

    def __init__(self, python: str, script: str, arguments: list[str]) -> None:
        path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path}
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [python, str(HERE / script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "ready", f"{script} did not start"
        self.ready_s = time.perf_counter() - started  # imports, compilation and the warm-up

    def run(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def compare(
    name: str, task: Task, peer_python: str, rounds: int, stretch: int | None = None
) -> list[dict[str, object]]:
    turns = [task.env_id, str(task.warm_up), str(stretch or task.stretch)]
    sides = [Side(sys.executable, task.script, [task.algo, *turns, *task.settings])]
    try:
        for peer in task.peers:
            arguments = [peer.library, peer.algo, *turns, *peer.settings]
            sides.append(Side(peer.python or peer_python, peer.script, arguments))
        rates = [[side.run() for side in sides] for _ in range(rounds)]
    finally:
        for side in sides:
            side.stop()
    results: list[dict[str, object]] = []
    for number, peer in enumerate(task.peers, 1):
        ratios = [row[0] / row[number] for row in rates]
        results.append(
            {
                "task": name,
                "peer": f"{peer.library} {peer.algo}",
                "ours_steps_per_s": statistics.median(row[0] for row in rates),
                "peer_steps_per_s": statistics.median(row[number] for row in rates),
                "ready_s": [round(sides[0].ready_s, 1), round(sides[number].ready_s, 1)],  # ours, the peer's
                "ratio_median": statistics.median(ratios),
                "ratio_interval": [round(x, 3) for x in bootstrap_interval(ratios, statistics.median)],
                "ratios": [round(ratio, 3) for ratio in ratios],
            }
        )
    return results


def machine() -> dict[str, object]:
    return {"platform": platform.platform(), "cores": os.cpu_count()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=[*TASKS, *OFFLINE])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--stretch", type=int, help="steps per turn (default: the task's)")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    results = {"machine": machine(), "comparisons": []}
    for task in args.tasks:
        found = compare(task, {**TASKS, **OFFLINE}[task], args.peer_python, args.rounds, args.stretch)
        for result in found:
            results["comparisons"].append(result)  # type: ignore[attr-defined]
            print(json.dumps(result), flush=True)
    if args.output:
        write_result(args.output, results, args.peer_python)


if __name__ == "__main__":
    main()
