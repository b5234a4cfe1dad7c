"""The speed of PPO: on a CPU whole loops against other libraries, on a GPU learning alone and all on the device.

python benchmarks/bench_on_policy.py [--peer-python PATH] [--tasks NAME…] [--rounds 8] [--output FILE]
python benchmarks/bench_on_policy.py --device cuda [--rounds 5] [--output FILE]
On a CPU the sides take turns of whole rollouts with learning; without --peer-python only the plain side is there.
On a GPU: seconds to learn 8 x 2,048 HalfCheetah-shaped steps against the same written plainly, environment steps per
second of a run in torch/CartPole-v1 with a profile, and a check that learning does not wait for the device.
Writes benchmarks/results/on-policy-speed-<device>.json. --quick is a dry run with small sizes.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench_cpu import Peer, Task, compare, machine
from on_policy_device import measure_device
from provenance import write_result

SB3 = ["n_steps=2048", "batch_size=64", "n_epochs=10"]  # its defaults; 64x64 tanh on every side
SAME = ["rollout_steps=2048", "batch_size=64", "epochs=10"]
CHEETAH = "HalfCheetah-v5"
TASKS = {"cartpole-8": ("CartPole-v1", 8), "halfcheetah-1": (CHEETAH, 1), "halfcheetah-8": (CHEETAH, 8)}
WANTED = {"stable_baselines3": 2.0, "plain": 1.0}


def task(name: str, peer_python: str | None) -> Task:
    env_id, num_envs = TASKS[name]
    envs = f"num_envs={num_envs}"
    # One thread, as our side chooses for networks of this size.
    peers = [Peer("plain", "PPO", [*SAME, envs, "threads=1"], "side_ppo_eager.py", sys.executable)]
    if peer_python is not None:
        peers.insert(0, Peer("stable_baselines3", "PPO", [*SB3, envs, "threads=1"]))
    # Turns of one rollout with its learning; the warm-up compiles.
    return Task("ppo", env_id, [*SAME, envs], peers, stretch=2048, warm_up=2 * 2048)


def whole_loops(args: argparse.Namespace) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    for name in args.tasks:
        for result in compare(name, task(name, args.peer_python), args.peer_python or "", args.rounds):
            for side in ("ours_steps_per_s", "peer_steps_per_s"):
                result[side] = float(result[side]) * TASKS[name][1]  # type: ignore[arg-type]  # the turns are vector steps
            found.append(result)
            print(json.dumps(result), flush=True)
    texts = [
        f"{one['task']} {one['ratio_median']:.2f} {one['ratio_interval']} times {one['peer']}"
        f" ({one['ours_steps_per_s']:,.0f} against {one['peer_steps_per_s']:,.0f})"
        for one in found
    ]
    wanted = " and ".join(f">= {factor:g} times {peer}" for peer, factor in WANTED.items())
    what = f"environment steps per second of PPO, whole loops on {machine()['cores']} CPU cores, {args.rounds}"
    what += f" interleaved turns (wanted: {wanted}); the turns leave out our compilation, which ready_s has"
    return {"what": what, "reached": "; ".join(texts), "machine": machine(), "comparisons": found}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--peer-python", help="an interpreter with stable-baselines3, as of `make on-policy-speed`")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="a dry run of the GPU's part, with small sizes")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    on_cpu = args.device == "cpu" and not args.quick
    found = whole_loops(args) if on_cpu else measure_device(args)
    output = args.output or Path(__file__).parent / "results" / f"on-policy-speed-{args.device}.json"
    write_result(output, found, args.peer_python)
    if any("error" in part for part in found.values() if isinstance(part, dict)):
        raise SystemExit(f"a measurement failed, see {output}")


if __name__ == "__main__":
    main()
