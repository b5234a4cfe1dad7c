"""Returns of other libraries with the settings, budget and evaluations of our packaged configs.

python benchmarks/peer_scores.py NAME... --peer-python PYTHON [--jobs 2] [--output benchmarks/results]
NAME is one of PEERS (stable-baselines3 and sb3-contrib) or of OFFLINE (d3rlpy on the same files, which --data has).
Every seed is a separate process: trained, evaluated at our intervals, and its best agent (offline: the last) evaluated
on fresh episodes. Writes <output>/peer-<name>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from learn import PROOFS
from provenance import write_result

from rl_training.cli import load_config
from rl_training.core.statistics import summarize
from rl_training.run.validate import parse_settings

HERE = Path(__file__).resolve().parent
CLASSES = {"dqn": "stable_baselines3:DQN", "qr_dqn": "sb3_contrib:QRDQN"}
# Pong would need the peer's image policies and wrappers.
PEERS = [name for name, proof in PROOFS.items() if proof.config.split("/")[1] in CLASSES and "pong" not in name]

D3RLPY = {"bc": "BC", "iql": "IQL", "cql": "CQL", "td3_bc": "TD3PlusBC"}
OFFLINE = [name for name, proof in PROOFS.items() if proof.data]  # proofs that name their files


def offline_settings(name: str, data: Path, device: str, jobs: int) -> dict[str, Any]:
    """Our config with all defaults; side_d3rlpy.py translates it to d3rlpy's names."""
    proof = PROOFS[name]
    config = load_config(proof.config, [], **proof.changes)
    _, settings = parse_settings(config)
    return {
        "script": "side_d3rlpy_scores.py",
        "class": D3RLPY[config.algo],
        "env_id": config.env_id,
        "files": [str(data / file) for file in proof.data],
        "total_timesteps": config.total_timesteps,
        "fresh_episodes": 100,
        "device": device,
        "threads": max(1, len(os.sched_getaffinity(0)) // jobs),
        "settings": {key: value for key, value in vars(settings).items() if not key.startswith("dataset_")},
    }


def peer_settings(name: str, device: str) -> dict[str, Any]:
    """Our config with the peer's names."""
    proof = PROOFS[name]
    config = load_config(proof.config, proof.overrides, **proof.changes)
    ours = config.algo_kwargs
    policy = {"net_arch": list(ours["hidden_sizes"])}
    if "num_quantiles" in ours:
        policy["n_quantiles"] = ours["num_quantiles"]
    return {
        "script": "side_sb3_scores.py",
        "class": CLASSES[config.algo],
        "device": device,
        "env_id": config.env_id,
        "total_timesteps": config.total_timesteps,
        "eval_interval": config.eval_interval,
        "eval_episodes": config.eval_episodes,
        "fresh_episodes": proof.episodes,
        "linear_rate": ours.get("learning_rate_schedule") == "linear",
        "kwargs": {
            "learning_rate": ours["learning_rate"],
            "buffer_size": ours["buffer_capacity"],
            "learning_starts": ours["learning_starts"],
            "batch_size": ours["batch_size"],
            "gamma": ours["gamma"],
            "train_freq": ours["train_frequency"],
            "gradient_steps": ours["gradient_updates_per_step"],
            "target_update_interval": ours["target_update_interval"],
            "exploration_fraction": ours["exploration_fraction"],
            "exploration_final_eps": ours["epsilon_end"],
            "policy_kwargs": policy,
        },
    }


def one_seed(python: str, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    command = [python, str(HERE / settings["script"]), json.dumps({**settings, "seed": seed})]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(answer.stderr)
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=[*PEERS, *OFFLINE, "all"])
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=Path, help="the folder of the offline proofs' datasets")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    names = PEERS if "all" in args.names else args.names
    if args.data is None and set(names) & set(OFFLINE):
        parser.error("the offline proofs need --data")
    settings = {
        name: offline_settings(name, args.data, args.device, args.jobs)
        if name in OFFLINE
        else peer_settings(name, args.device)
        for name in names
    }
    done: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with ThreadPoolExecutor(args.jobs) as pool:
        waiting = {
            pool.submit(one_seed, args.peer_python, settings[name], seed): name
            for name in names
            for seed in range(args.seeds)
        }
        for future in as_completed(waiting):
            name = waiting[future]
            done[name].append(future.result())
            if len(done[name]) == args.seeds:
                write(name, settings[name], sorted(done[name], key=lambda one: one["seed"]), args)


def write(name: str, settings: dict[str, Any], seeds: list[dict[str, Any]], args: argparse.Namespace) -> None:
    kinds = [kind for kind in ("best", "final") if kind in seeds[0]]
    summary = {kind: summarize([one[kind] for one in seeds]) for kind in kinds}
    if name in OFFLINE:
        settings = {**settings, "files": list(PROOFS[name].data)}  # without their folder
    result = {"name": name, "settings": settings, "summary": summary, "seeds": seeds}
    write_result(args.output / f"peer-{name}.json", result, args.peer_python)
    print(f"{name}: {kinds[0]} {summary[kinds[0]]['iqm']:.1f} {summary[kinds[0]]['interval']}", flush=True)


if __name__ == "__main__":
    main()
