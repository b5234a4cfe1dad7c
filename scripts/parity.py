"""Digests of short runs of every algorithm, to check that a refactoring changed no bits.

python scripts/parity.py --output before.json        # on the old code
python scripts/parity.py --compare before.json       # on the new code; exit 1 if a digest differs

Tensors are compared without their names and files, since those may change: weights, targets, optimizer state, replay
and metrics, per run, as a sorted list of digests; the agent file and the rows of the logs are compared by name.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from conftest import make_quick_config  # noqa: E402

import rl_training  # noqa: E402, F401  (first: it pins how the libraries round)
from rl_training.experiment.registry import get_algorithm_spec, list_algorithm_specs  # noqa: E402

VOLATILE = ("time/",)  # rows that differ from run to run
COMPILED = ("sac", "dqn", "iql")
VARIANTS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # name -> algorithm, settings, fields
    "dqn switches": ("dqn", {"double": True, "dueling": True, "noisy": True, "n_step": 3, "prioritized": True}, {}),
    "sac normalized": ("sac", {"normalize_observations": True, "learning_rate_schedule": "linear"}, {"num_envs": 2}),
    "sac fixed alpha": ("sac", {"alpha": 0.1, "num_critics": 3, "max_grad_norm": 1.0}, {}),
    "cql cloning": ("cql", {"bc_updates": 20, "lagrange_threshold": 1.0}, {}),
    "cql backup": ("cql", {"max_backup": True}, {}),
    "iql online": ("iql", {"offline_steps": 60}, {}),
}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def tensor_digests(path: Path) -> dict[str, str]:
    from safetensors.numpy import load_file

    return {name: digest(f"{one.dtype} {one.shape}".encode() + one.tobytes()) for name, one in load_file(path).items()}


def rows_of(path: Path) -> list[str]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [{k: v for k, v in row.items() if not k.startswith(VOLATILE)} for row in rows]
    return [digest(json.dumps(row, sort_keys=True).encode()) for row in kept]


def snapshot(algo: str, settings: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Train one short run and digest its files."""
    with tempfile.TemporaryDirectory() as folder:
        fields = {"total_timesteps": 137, "checkpoint_interval": 61, "compile": "off", **fields}
        config = make_quick_config(algo, Path(folder), settings, **fields)
        result = get_algorithm_spec(algo).train_fn(config, show_progress=False)
        saved = sorted(result.checkpoint_path.glob("*.safetensors"))
        tensors = sorted(found for path in saved for found in tensor_digests(path).values())
        agents = {path.name: tensor_digests(path) for path in sorted((result.run_dir / "agents").glob("*_final*"))}
        logs = {name: rows_of(result.run_dir / name) for name in ("metrics.jsonl", "evaluations.jsonl")}
    return {"checkpoint": tensors, "agents": agents, **logs}


def cases() -> dict[str, tuple[str, dict[str, Any], dict[str, Any]]]:
    names = [spec.name for spec in list_algorithm_specs()]
    found: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {name: (name, {}, {}) for name in names}
    found |= {f"{name} seeds": (name, {}, {"seeds": (3, 1)}) for name in names}
    found |= {f"{name} compiled": (name, {}, {"compile": "on"}) for name in COMPILED}
    return {**found, **VARIANTS}


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    found = [f"{name}: not in both" for name in before.keys() ^ now.keys()]
    for name in before.keys() & now.keys():
        parts = [part for part in before[name] if before[name][part] != now[name].get(part)]
        if parts:
            found.append(f"{name}: {', '.join(parts)}")
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--only", nargs="+", help="names of cases")
    args = parser.parse_args()
    now = {}
    for name, case in cases().items():
        if args.only is None or name in args.only:
            now[name] = snapshot(*case)
            print(name, flush=True)
    if args.output is not None:
        args.output.write_text(json.dumps(now, indent=1) + "\n")
    if args.compare is None:
        return 0
    before = json.loads(args.compare.read_text())
    before = {name: value for name, value in before.items() if name in now or args.only is None}
    found = differences(before, now)
    print("\n".join(found) or f"{len(now)} runs, every digest equal")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
