"""Learning proofs: train several seeds as one program, evaluate their best and final agents on fresh episodes.

python benchmarks/learn.py NAME… [--device auto] [--seeds 0-7] [--output benchmarks/results]
NAME is one of `proofs.PROOFS`, `on-policy` or `all`. The offline proofs need --data FOLDER with their datasets.
With --side-by-side each seed is a process of its own, with its share of the cores: faster for images, where the
seeds of a program run one after the other. Seeds that ran elsewhere are put together: NAME --merge FILE….
With --runs FOLDER --minutes N it saves and stops after N minutes altogether, and resumes when called again.
Writes <output>/<name>.json (all numbers), <name>.svg (the curve) and updates the table in <output>/README.md.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from proofs import PROOFS, on_policy_proofs
from provenance import ROOT, write_result
from svg import standalone

from rl_training.checkpoint.read import load_checkpoint
from rl_training.cli import load_config
from rl_training.config.train_config import TrainConfig, parse_seeds
from rl_training.core.d4rl import normalized_score
from rl_training.core.results import TrainResult
from rl_training.core.statistics import summarize
from rl_training.envs.host.factory import env_source
from rl_training.report.charts import Point, Series, line_chart
from rl_training.run.agent import load_agent
from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.session import Session
from rl_training.run.workflows import evaluate_agent

sys.path.append(str(ROOT / "tests"))  # of masked_envs, an environment of the tests


class StopAt(Callback):
    """Stops a run at a time of the monotonic clock; resuming gives the same bits as a run that was never stopped."""

    def __init__(self, end: float) -> None:
        self.end = end

    def on_step(self, session: Session) -> bool | None:
        return False if time.monotonic() > self.end else None


def train_or_resume(config: TrainConfig, end: float | None) -> TrainResult:
    callbacks = [] if end is None else [StopAt(end)]
    begun = sorted(config.output_dir.glob("*/run.json"))
    if begun:
        module = config.env_id if ":" in config.env_id else None  # a module must be named again
        return resume_training(begun[-1].parent, callbacks=callbacks, env_id=module)
    return get_algorithm_spec(config.algo).train_fn(config, None, callbacks)


def prove(name: str, args: argparse.Namespace, end: float | None) -> dict[str, Any] | None:
    """Train and evaluate; None if the time was up before the end of training."""
    proof, data = PROOFS[name], args.data
    settings = ["video=false", "checkpoint_interval=1000000", *args.set]
    if proof.data:
        if data is None:
            raise SystemExit(f"{name}: --data must name the folder with {', '.join(proof.data)}")
        paths = json.dumps([str(data / file) for file in proof.data])
        settings += ["algo_kwargs.dataset_kind=file", f"algo_kwargs.dataset_path={paths}"]
        settings += ["algo_kwargs.dataset_agent=null"]
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(
            proof.config, [*settings, *proof.overrides], output_dir=str((args.runs or Path(folder)) / name),
            device=args.device, seeds=list(args.seeds or range(proof.seeds)), **proof.changes,
        )  # fmt: skip
        result = train_or_resume(config, end)
        if result.metrics["global_step"] < config.total_timesteps:
            print(f"{name}: saved at step {result.metrics['global_step']} of {config.total_timesteps}", flush=True)
            return None
        seconds = load_checkpoint(result.checkpoint_path).state["parts"]["session"]["elapsed"]  # over all resumes
        fresh: dict[str, dict[str, float]] = {"best": {}, "final": {}}
        for kind, means in fresh.items():
            for seed in config.seed_list:
                agent = load_agent(result.run_dir / "agents" / f"seed_{seed}_{kind}.safetensors")
                evaluation = evaluate_agent(agent, env_source(config, config.env_id), proof.episodes)
                means[str(seed)] = evaluation["eval_return_mean"]
        rows = [json.loads(line) for line in (result.run_dir / "evaluations.jsonl").read_text().splitlines()]
        record = json.loads((result.run_dir / "run.json").read_text())
        logged = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    curve = curve_of(rows, logged)
    summary = {kind: dict(summarize(list(means.values()))) for kind, means in fresh.items()}
    if proof.judged == "evaluation":
        summary["evaluation"] = best_evaluation(curve)
    if proof.data:
        config.algo_kwargs["dataset_path"] = list(proof.data)  # without their folder
    return {
        "name": name,
        "judged": proof.judged,
        "d4rl_score": normalized_score(config.env_id, summary[proof.judged]["iqm"]) if proof.data else None,
        "config": {**config.to_dict(), "output_dir": "runs"},
        "reference": proof.reference,
        "threshold": proof.threshold,
        **({"at_most": True} if proof.at_most else {}),
        "episodes_per_agent": proof.episodes,
        "fresh_returns": fresh,
        "summary": summary,
        "train_seconds": seconds,
        "seeds_x_steps_per_s": len(config.seed_list) * config.total_timesteps / seconds,
        "engine": record["execution_plan"],
        "trained_commit": record["git_commit"],  # when the run began
        "curve": curve,
    }


def prove_side_by_side(name: str, args: argparse.Namespace) -> dict[str, Any] | None:
    """`prove` with a process for each seed; None if the time was up before all of them ended."""
    seeds = list(args.seeds or range(PROOFS[name].seeds))
    share = max(len(os.sched_getaffinity(0)) // len(seeds), 1)
    with tempfile.TemporaryDirectory() as folder:
        processes = [subprocess.Popen(seed_command(name, args, seed, share, Path(folder))) for seed in seeds]
        try:
            for process in processes:
                process.wait()
        finally:
            for process in processes:
                process.terminate()  # it saves and stops
        files = [Path(folder, str(seed), f"{name}.json") for seed in seeds]
        missing = [seed for seed, file in zip(seeds, files, strict=True) if not file.exists()]
        if missing:
            print(f"{name}: seeds {missing} have no result yet", flush=True)
            return None
        return merged([json.loads(file.read_text()) for file in files])


def seed_command(name: str, args: argparse.Namespace, seed: int, share: int, folder: Path) -> list[str]:
    """The command that proves one seed, with so many of the cores for its environments."""
    command = [sys.executable, __file__, name, "--device", args.device, "--seeds", str(seed)]
    command += ["--output", str(folder / str(seed)), "--set", f"workers={share if share > 1 else 0}", *args.set]
    command += [] if args.data is None else ["--data", str(args.data)]
    command += [] if args.runs is None else ["--runs", str(args.runs / str(seed))]
    return command if args.minutes is None else [*command, "--minutes", str(args.minutes)]


def merged(results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The result of all seeds, from results of the same proof with some of the seeds each, which ran side by side."""
    first, seeds = results[0], [seed for one in results for seed in one["config"]["seeds"]]
    kinds = first["fresh_returns"]
    fresh = {kind: {k: v for one in results for k, v in one["fresh_returns"][kind].items()} for kind in kinds}
    curve = [row for one in results for row in one["curve"]]
    summary = {kind: dict(summarize(list(means.values()))) for kind, means in fresh.items()}
    if first["judged"] == "evaluation":
        summary["evaluation"] = best_evaluation(curve)
    seconds = max(one["train_seconds"] for one in results)
    return {
        **first,
        "config": {**first["config"], "seeds": seeds},
        "runs": len(results),
        "fresh_returns": fresh,
        "summary": summary,
        "train_seconds": seconds,
        "seeds_x_steps_per_s": len(seeds) * first["config"]["total_timesteps"] / seconds,
        "curve": curve,
    }


def curve_of(evaluations: list[dict[str, Any]], logged: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each evaluation's step, seed and mean return, with the seconds of the run until then from the rows of metrics."""
    times = sorted({(row["step"], row["time/time_elapsed"]) for row in logged if "time/time_elapsed" in row})
    steps, seconds = zip(*times, strict=True) if times else ((0,), (math.nan,))
    return [
        {
            "step": row["step"],
            "seed": row["seed"],
            "mean": sum(row["returns"]) / len(row["returns"]),
            "seconds": round(float(np.interp(row["step"], steps, seconds)), 1),
        }
        for row in evaluations
    ]


def steps_label(result: dict[str, Any]) -> str:
    """What the steps of a proof are: offline there is no environment."""
    return "updates" if "dataset_path" in result["config"]["algo_kwargs"] else "environment steps"


def by_step(curve: list[dict[str, Any]]) -> dict[int, list[float]]:
    """The seeds' mean returns at each evaluation."""
    found: dict[int, list[float]] = {}
    for row in sorted(curve, key=lambda row: row["step"]):
        found.setdefault(row["step"], []).append(row["mean"])
    return found


def best_evaluation(curve: list[dict[str, Any]]) -> dict[str, Any]:
    """The evaluation with the largest mean over seeds, which tianshou's results are."""
    step, values = max(by_step(curve).items(), key=lambda one: sum(one[1]) / len(one[1]))
    return {"step": step, **summarize(values)}


def curve_svg(result: dict[str, Any]) -> str:
    """The interquartile mean over seeds at each evaluation, with its interval."""
    points = []
    for step, values in by_step(result["curve"]).items():
        summary = summarize(values)
        points.append(Point(step, summary["iqm"], *summary["interval"]))
    chart = line_chart([Series("evaluation", points, markers=True)], result["name"], steps_label(result), "return")
    return standalone(chart)


def peer_of(name: str, folder: Path) -> dict[str, Any] | None:
    """The peer's summary with these settings; for C51, which sb3 lacks, that of its DQN."""
    path = folder / f"peer-{name.removeprefix('c51_')}.json"
    summary: dict[str, Any] = json.loads(path.read_text())["summary"] if path.exists() else {}
    return summary.get("best") or summary.get("final")  # offline there is only the last agent


def passed(result: dict[str, Any], folder: Path) -> bool | None:
    """Whether a result reaches its threshold; None if the threshold is the peer's, which is missing."""
    threshold, peer = result["threshold"], peer_of(result["name"], folder)
    if threshold is None and peer is None:
        return None
    judged = result.get("judged", "best")
    reached = result["summary"][judged]["mean" if judged == "evaluation" else "iqm"]
    if result.get("at_most"):
        return bool(reached <= threshold)
    return bool(reached >= (peer["iqm"] if threshold is None and peer else threshold))


COLUMNS = (
    *("proof", "steps", "seeds", "episodes", "best agent", "final agent", "wanted", "reached", "peer", "reference"),
    *("time", "device"),
)


def table(folder: Path) -> str:
    lines = [
        "# Results",
        "",
        "Made by `benchmarks/learn.py`: greedy policy on fresh episodes, interquartile mean over seeds [interval];",
        "of fewer than four seeds the mean.",
        "Peer: stable-baselines3 or sb3-contrib with the same settings and budget, best agent of each of 5 seeds on",
        "100 fresh episodes (`benchmarks/peer_scores.py`); C51, with its own settings, stands beside its DQN;",
        "offline the peer is d3rlpy, and its last agent counts too.",
        "Wanted of the best agent; offline, where steps are updates, and beside published curves of MuJoCo v4 of the",
        "last one, as published results are;",
        "of PPO in MuJoCo of the best average evaluation (avg), tianshou's measure.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    others: list[str] = []
    notes: list[str] = []
    for path in sorted(folder.glob("*.json")):
        result = json.loads(path.read_text())
        if "fresh_returns" not in result:
            parts = [result[key] for key in ("what", "reached") if key in result]
            line = ": ".join([f"- [{path.stem}]({path.name})", *parts])
            others += [] if path.name.startswith("peer-") else [line]
            continue
        cells = []
        for kind in ("best", "final"):
            low, high = result["summary"][kind]["interval"]
            score = f", D4RL {result['d4rl_score']:.1f}" if kind == "final" and result.get("d4rl_score") else ""
            score = score if result.get("judged") == "final" else ""
            cells.append(f"{result['summary'][kind]['iqm']:.1f} [{low:.1f}, {high:.1f}]{score}")
        if "evaluation" in result["summary"]:
            cells[0] += ", avg {mean:.1f} at {step:,}".format(**result["summary"]["evaluation"])
        peer = peer_of(result["name"], folder)
        other = f"{peer['iqm']:.1f} [{peer['interval'][0]:.1f}, {peer['interval'][1]:.1f}]" if peer else ""
        reached = {True: "yes", False: "no", None: "no peer yet"}[passed(result, folder)]
        sign = "<=" if result.get("at_most") else ">="
        wanted = "the peer's" if result["threshold"] is None else f"{sign} {result['threshold']:g}"
        lines.append(
            f"| [{result['name']}]({result['name']}.svg) | {result['config']['total_timesteps']:,} | "
            f"{result['summary']['final']['n']} | {result['episodes_per_agent']} | {cells[0]} | {cells[1]} | "
            f"{wanted} | {reached} | {other} | {result['reference']} | {result['train_seconds']:.0f} s | "
            f"{result['engine']['device']} |"
        )
        if "note" in result:
            notes.append(f"- {result['name']}: {result['note']}")
    lines += ["", *notes, "", "Other measurements and runs that were stopped before their end, with all figures:", ""]
    lines += others
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=[*PROOFS, "on-policy", "all"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=parse_seeds, help="like 0-7 or 0,3,5 (default: the proof's)")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--runs", type=Path, help="keep the runs here, and resume existing ones")
    parser.add_argument("--minutes", type=float, help="save and stop after this time (needs --runs)")
    parser.add_argument("--side-by-side", action="store_true", help="each seed in a process of its own")
    parser.add_argument("--merge", type=Path, nargs="+", help="result files of one proof with other seeds each")
    parser.add_argument("--set", nargs="*", default=[], help="changes of how the run is executed, such as workers=0")
    parser.add_argument("--data", type=Path, help="the folder of the offline proofs' datasets")
    args = parser.parse_args()
    if args.minutes is not None and args.runs is None:
        parser.error("--minutes needs --runs, to resume the run")
    args.output.mkdir(parents=True, exist_ok=True)
    failed = []
    groups = {"on-policy": list(on_policy_proofs())}
    groups["all"] = [name for name, proof in PROOFS.items() if args.data is not None or not proof.data]
    end = None if args.minutes is None else time.monotonic() + 60 * args.minutes
    for name in [one for given in args.names for one in groups.get(given, [given])]:
        if args.merge is not None:
            result = merged([json.loads(path.read_text()) for path in args.merge])
        elif args.side_by_side:
            result = prove_side_by_side(name, args)
        else:
            result = prove(name, args, end)
        if result is None:
            continue
        write_result(args.output / f"{name}.json", result)
        (args.output / f"{name}.svg").write_text(curve_svg(result))
        best, final = result["summary"]["best"], result["summary"]["final"]
        print(f"{name}: best {best['iqm']:.1f} {best['interval']}, final {final['iqm']:.1f}", flush=True)
        failed += [] if passed(result, args.output) else [name]
    (args.output / "README.md").write_text(table(args.output))
    if failed:
        raise SystemExit(f"below the threshold: {', '.join(failed)}")


if __name__ == "__main__":
    main()
