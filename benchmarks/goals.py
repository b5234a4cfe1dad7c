"""Success rates with and without hindsight relabelling: seeds train as one program, final agents on fresh episodes.

python benchmarks/goals.py NAME [--output benchmarks/results]       (NAME: one of PROOFS, or all)
Writes <output>/goals-<name>.json and updates the table in <output>/README.md. FetchReach needs gymnasium-robotics.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import learn
import numpy as np
from provenance import write_result

from rl_training.cli import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.envs.host.factory import env_source
from rl_training.run.agent import Agent, load_agent
from rl_training.run.algorithm_spec import get_algorithm_spec

SEEDS, EPISODES = 5, 100
FRESH = 1_000_000  # the first seed of the fresh episodes


@dataclass(frozen=True)
class Proof:
    config: str
    relabelled: float  # the success rate that relabelling must reach with every seed
    plain: float | None  # the one that nothing reaches without; None: not measured
    changes: tuple[str, ...] = ()


PROOFS = {
    "bitflip": Proof("configs/dqn/bitflip.yaml", 0.95, 0.1),
    "point_reach": Proof("configs/sac/point_reach.yaml", 0.9, 0.3),
    "fetch_reach": Proof(
        "configs/sac/point_reach.yaml", 0.95, None,
        ("env_id=gymnasium_robotics:FetchReach-v4", "total_timesteps=8000", "train_frequency=1",
         "normalize_observations=true"),
    ),
}  # fmt: skip


def success_rate(agent: Agent, config: TrainConfig) -> float:
    """The share of greedy episodes whose last step is a success."""
    source = env_source(config, config.env_id)
    envs = [source.make() for _ in range(EPISODES)]
    obs = [env.reset(seed=FRESH + number)[0] for number, env in enumerate(envs)]
    success, active = np.zeros(EPISODES, bool), list(range(EPISODES))
    while active:
        batch = {name: np.stack([obs[number][name] for number in active]) for name in obs[0]}
        actions, going = agent.predict(batch), []
        for action, number in zip(actions, active, strict=True):
            obs[number], _, terminated, truncated, info = envs[number].step(action)
            success[number] = info["is_success"]
            going += [] if terminated or truncated else [number]
        active = going
    for env in envs:
        env.close()
    return float(success.mean())


def train(proof: Proof, relabel: bool, folder: Path) -> dict[str, Any]:
    changes = [*proof.changes, "eval_interval=1000000", "video=false", "report=false"]
    changes += [] if relabel else ["her=null"]
    seeds = list(range(SEEDS))
    config = load_config(proof.config, changes, output_dir=str(folder), seeds=seeds, device="cpu")
    result = get_algorithm_spec(config.algo).train_fn(config, str(relabel))
    record = json.loads((result.run_dir / "run.json").read_text())
    agents = [result.run_dir / "agents" / f"seed_{seed}_final.safetensors" for seed in range(SEEDS)]
    return {
        "config": {**config.to_dict(), "output_dir": "runs"},
        "success_rates": [success_rate(load_agent(path), config) for path in agents],
        "eval_return_mean": result.metrics["eval_return_mean"],
        "engine": record["execution_plan"],
    }


def prove(name: str) -> tuple[dict[str, Any], bool]:
    proof, found = PROOFS[name], {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("relabelled", "plain") if proof.plain is not None else ("relabelled",):
            found[kind] = train(proof, kind == "relabelled", Path(folder))
            print(name, kind, found[kind]["success_rates"], flush=True)
    passed = min(found["relabelled"]["success_rates"]) >= proof.relabelled
    texts = [f"relabelled {_rates(found['relabelled'])} (wanted: >= {proof.relabelled:g})"]
    if proof.plain is not None:
        passed &= max(found["plain"]["success_rates"]) <= proof.plain
        texts.append(f"plain {_rates(found['plain'])} (wanted: <= {proof.plain:g})")
    config = found["relabelled"]["config"]
    what = f"success rates of {config['algo']} on {config['env_id'].rpartition(':')[2]} with hindsight relabelling"
    what += f", {config['total_timesteps']:,} steps, final agents of {SEEDS} seeds on {EPISODES} fresh episodes each"
    return {"what": what, "reached": "; ".join(texts), "passed": passed, **found}, passed


def _rates(found: dict[str, Any]) -> str:
    return ", ".join(f"{rate:.2f}" for rate in found["success_rates"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=[*PROOFS, "all"])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    failed = []
    for name in ("bitflip", "point_reach") if "all" in args.names else args.names:
        result, passed = prove(name)
        write_result(args.output / f"goals-{name}.json", result)
        failed += [] if passed else [name]
    (args.output / "README.md").write_text(learn.table(args.output))
    if failed:
        raise SystemExit(f"not as wanted: {', '.join(failed)}")


if __name__ == "__main__":
    main()
