"""Learning proofs: train several seeds as one program, evaluate their best and final agents on fresh episodes.

python benchmarks/learn.py NAME [--device auto] [--output benchmarks/results]     (NAME: one of PROOFS, or all)
The offline proofs need --data FOLDER with their datasets.
With --runs FOLDER --minutes N it saves and stops after N minutes, and resumes when called again.
Writes <output>/<name>.json (all numbers), <name>.svg (the curve) and updates the table in <output>/README.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provenance import write_result

from rl_training.checkpoint.read import load_checkpoint
from rl_training.cli import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.core.d4rl import normalized_score
from rl_training.core.results import TrainResult
from rl_training.core.statistics import summarize
from rl_training.envs.host.factory import env_source
from rl_training.report.charts import CHART_CSS, Point, Series, line_chart
from rl_training.run.agent import load_agent
from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.session import Session
from rl_training.run.workflows import evaluate_agent


@dataclass(frozen=True)
class Proof:
    config: str
    seeds: int
    episodes: int  # fresh ones, for each agent
    threshold: float | None  # the required interquartile mean of the judged agents; None: the peer's
    reference: str
    changes: dict[str, Any] = field(default_factory=dict)
    overrides: tuple[str, ...] = ()
    data: tuple[str, ...] = ()  # files in --data, of one dataset; the final agent is judged, as in published results

    @property
    def judged(self) -> str:
        return "final" if self.data else "best"


PENDULUM = {"replay": "pendulum_replay_v1_1_0.npz", "expert": "pendulum_expert_sac_50eps.npz"}
HOPPER = {"medium": ("hopper_v5_medium.npz",), "expert": ("hopper_v5_expert.npz",)}
HOPPER["both"] = HOPPER["medium"] + HOPPER["expert"]
# D4RL's scores of CORL's last agents after 1M updates, on hopper-medium-v2 and hopper-medium-expert-v2: a yardstick for
# similar datasets. Required: the mean return of the data; for both files nearly that of the better one.
CORL = {"bc": (53.5, 52.3), "td3_bc": (60.4, 101.2), "cql": (59.1, 99.3), "iql": (67.5, 107.4)}
REQUIRED = {"medium": 1544.0, "expert": 2850.0, "both": 2600.0}


def offline_proofs() -> dict[str, Proof]:
    found = {}
    for algo, (medium, medium_expert) in CORL.items():
        for kind, name in PENDULUM.items():
            reference = f"the data: {'-180.5' if kind == 'replay' else '-174.7'}"
            config = f"configs/{algo}/pendulum.yaml"
            found[f"{algo}-pendulum-{kind}"] = Proof(config, 5, 100, -200.0, reference, data=(name,))
        for kind, files in HOPPER.items():
            published = {"medium": f"{medium}", "expert": "none", "both": f"{medium_expert} (medium-expert)"}[kind]
            required = REQUIRED["medium"] if algo == "bc" and kind == "both" else REQUIRED[kind]
            config, reference = f"configs/{algo}/hopper.yaml", f"D4RL score {published} (CORL, 1M updates)"
            found[f"{algo}-hopper-{kind}"] = Proof(
                config, 5, 20, required, reference, {"eval_interval": 100_000}, data=files
            )
        short = {"total_timesteps": 20_000, "eval_interval": 20_000}  # the budget of the peer, which is slow
        seeds = 16 if algo == "bc" else 5  # the returns of cloned policies vary much between seeds
        found[f"{algo}-hopper-medium-20k"] = Proof(
            f"configs/{algo}/hopper.yaml", seeds, 100, None, "the data: 1544", short, data=HOPPER["medium"]
        )
    return found


PROOFS = {
    "dqn-cartpole": Proof(
        "configs/dqn/cartpole.yaml", 8, 100, 475.0, "500 (RL Zoo, 50k steps); 475 is Gymnasium's threshold"
    ),
    "dqn-acrobot": Proof("configs/dqn/acrobot.yaml", 8, 100, -80.0, "-76.6 (RL Zoo, 100k steps)"),
    "dqn-lunarlander": Proof("configs/dqn/lunarlander.yaml", 8, 100, None, "154 +- 79 (RL Zoo, 100k steps, v2)"),
    "dqn-mountaincar": Proof("configs/dqn/mountaincar.yaml", 8, 100, None, "-100.8 (RL Zoo, 120k steps)"),
    "c51_dqn-cartpole": Proof("configs/c51_dqn/cartpole.yaml", 8, 100, 475.0, "481 +- 21 (CleanRL, 500k, training)"),
    "c51_dqn-acrobot": Proof("configs/c51_dqn/acrobot.yaml", 8, 100, -80.0, "-87.7 (CleanRL, 500k, training)"),
    "c51_dqn-lunarlander": Proof("configs/c51_dqn/lunarlander.yaml", 8, 100, None, "none published"),
    "c51_dqn-mountaincar": Proof("configs/c51_dqn/mountaincar.yaml", 8, 100, None, "-166 (CleanRL, 500k, training)"),
    "qr_dqn-cartpole": Proof("configs/qr_dqn/cartpole.yaml", 8, 100, 475.0, "500 (RL Zoo qrdqn, 50k steps)"),
    "qr_dqn-acrobot": Proof("configs/qr_dqn/acrobot.yaml", 8, 100, -80.0, "-69.1 (RL Zoo, 100k steps)"),
    "qr_dqn-lunarlander": Proof("configs/qr_dqn/lunarlander.yaml", 8, 100, None, "70 +- 226 (RL Zoo, 100k, v2)"),
    "qr_dqn-mountaincar": Proof("configs/qr_dqn/mountaincar.yaml", 8, 100, None, "-106.0 (RL Zoo, 120k steps)"),
    "iqn-cartpole": Proof("configs/iqn/cartpole.yaml", 8, 100, 475.0, "none published"),
    "rainbow_dqn-cartpole": Proof("configs/rainbow_dqn/cartpole.yaml", 8, 100, 475.0, "none published"),
    "sac-pendulum": Proof("configs/sac/pendulum.yaml", 8, 100, -200.0, "-157 +- 89 (RL Zoo, 20k steps)"),
    "sac-halfcheetah-100k": Proof(
        "configs/sac/halfcheetah.yaml", 16, 10, 3900.0, "4,601 (RL Zoo) to 4,926 (Dopamine) at 100k steps",
        {"total_timesteps": 100_000},
    ),
    "dqn-pong-1m": Proof(  # without sticky actions, as the reference
        "configs/dqn/pong.yaml", 1, 10, 15.0, "15 (RL Zoo's curve at 1M steps, no sticky actions)",
        {"total_timesteps": 1_000_000, "eval_interval": 100_000},
        ("env_kwargs.wrappers.atari.repeat_action_probability=0",),
    ),
    "td3-pendulum": Proof("configs/td3/pendulum.yaml", 8, 100, -200.0, "-152 +- 90 (RL Zoo, 20k steps)"),
    "tqc-pendulum": Proof("configs/tqc/pendulum.yaml", 8, 100, -200.0, "-151 +- 88 (RL Zoo, 20k steps)"),
    "redq-pendulum": Proof("configs/redq/pendulum.yaml", 8, 100, -200.0, "none published (SAC: -157, RL Zoo)"),
    "td3-halfcheetah-200k": Proof(
        "configs/td3/halfcheetah.yaml",
        16,  # batches of eight gave interquartile means from 6,671 to 7,984
        10,
        6000.0,
        "6,995 (RL Zoo's curve at 200k steps, one run)",
        overrides=("eval_interval=25000",),
    ),
    "tqc-halfcheetah-200k": Proof(
        "configs/tqc/halfcheetah.yaml", 8, 10, 5700.0, "6,697 (RL Zoo's curve at 200k steps, one run)"
    ),
    "redq-hopper-125k": Proof(
        "configs/redq/hopper.yaml", 4, 10, 3200.0, "3,517 (the paper); 3,342 +- 45 (nnabla-rl) at 125k steps",
        {"eval_interval": 12_500},
    ),
    "drq-pendulum-pixels": Proof("configs/drq/pendulum_pixels.yaml", 3, 20, -250.0, "none published from pixels"),
    "drqv2-pendulum-pixels": Proof("configs/drqv2/pendulum_pixels.yaml", 3, 20, -250.0, "none published from pixels"),
    "drq-cartpole-swingup-100k": Proof(
        "configs/drq/cartpole_swingup.yaml", 3, 10, 667.0, "759 +- 93 (the authors, 100k environment steps, 10 seeds)"
    ),
    "drqv2-cartpole-swingup-100k": Proof(
        "configs/drqv2/cartpole_swingup.yaml", 3, 10, 372.0, "626 +- 254 (the authors, 100k frames, 10 seeds)"
    ),
    **offline_proofs(),
}  # fmt: skip


class StopAfter(Callback):
    """Stops a run after some time; resuming gives the same bits as a run that was never stopped."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    def on_step(self, session: Session) -> bool | None:
        return False if time.monotonic() > self.end else None


def train_or_resume(config: TrainConfig, minutes: float | None) -> TrainResult:
    callbacks = [] if minutes is None else [StopAfter(60 * minutes)]
    begun = sorted(config.output_dir.glob("*/run.json"))
    if begun:
        return resume_training(begun[-1].parent, callbacks=callbacks)
    return get_algorithm_spec(config.algo).train_fn(config, None, callbacks)


def prove(
    name: str, device: str, runs: Path | None, minutes: float | None, data: Path | None = None
) -> dict[str, Any] | None:
    """Train and evaluate; None if the time was up before the end of training."""
    proof = PROOFS[name]
    settings = ["video=false", "checkpoint_interval=1000000"]
    if proof.data:
        if data is None:
            raise SystemExit(f"{name}: --data must name the folder with {', '.join(proof.data)}")
        paths = json.dumps([str(data / file) for file in proof.data])
        settings += ["algo_kwargs.dataset_kind=file", f"algo_kwargs.dataset_path={paths}"]
        settings += ["algo_kwargs.dataset_agent=null"]
    with tempfile.TemporaryDirectory() as folder:
        config = load_config(
            proof.config, [*settings, *proof.overrides], output_dir=str((runs or Path(folder)) / name),
            device=device, seeds=list(range(proof.seeds)), **proof.changes,
        )  # fmt: skip
        result = train_or_resume(config, minutes)
        if result.metrics["global_step"] < config.total_timesteps:
            print(f"{name}: saved at step {result.metrics['global_step']} of {config.total_timesteps}", flush=True)
            return None
        seconds = load_checkpoint(result.checkpoint_path).state["parts"]["session"]["elapsed"]  # over all resumes
        fresh: dict[str, dict[str, float]] = {"best": {}, "final": {}}
        for kind, means in fresh.items():
            for seed in config.seed_list:
                agent = load_agent(result.run_dir / "agents" / f"seed_{seed}_{kind}.safetensors")
                evaluation = evaluate_agent(agent, env_source(config), proof.episodes)
                means[str(seed)] = evaluation["eval_return_mean"]
        rows = [json.loads(line) for line in (result.run_dir / "evaluations.jsonl").read_text().splitlines()]
        record = json.loads((result.run_dir / "run.json").read_text())
    summary = {kind: dict(summarize(list(means.values()))) for kind, means in fresh.items()}
    if proof.data:
        config.algo_kwargs["dataset_path"] = list(proof.data)  # without their folder
    return {
        "name": name,
        "judged": proof.judged,
        "d4rl_score": normalized_score(config.env_id, summary[proof.judged]["iqm"]),
        "config": {**config.to_dict(), "output_dir": "runs"},
        "reference": proof.reference,
        "threshold": proof.threshold,
        "episodes_per_agent": proof.episodes,
        "fresh_returns": fresh,
        "summary": summary,
        "train_seconds": seconds,
        "seeds_x_steps_per_s": proof.seeds * config.total_timesteps / seconds,
        "engine": record["execution_plan"],
        "trained_commit": record["git_commit"],  # when the run began
        "curve": [
            {"step": row["step"], "seed": row["seed"], "mean": sum(row["returns"]) / len(row["returns"])}
            for row in rows
        ],
    }


def curve_svg(result: dict[str, Any]) -> str:
    """The interquartile mean over seeds at each evaluation, with its interval."""
    by_step: dict[int, list[float]] = {}
    for row in result["curve"]:
        by_step.setdefault(row["step"], []).append(row["mean"])
    points = []
    for step, values in sorted(by_step.items()):
        summary = summarize(values)
        points.append(Point(step, summary["iqm"], *summary["interval"]))
    steps = "updates" if result.get("judged") == "final" else "environment steps"
    chart = line_chart([Series("evaluation", points, markers=True)], result["name"], steps, "return")
    svg = chart[chart.index("<svg") : chart.index("</svg>") + 6]
    colours = "--accent:#2563eb;--accent-2:#d97706;--grid:#e3e6eb;--axis:#98a2b3;--muted:#475467;--card:#fff"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" style="background:#fff;{colours}" '
    return svg.replace("<svg ", head, 1).replace(">", f"><style>{CHART_CSS}</style>", 1) + "\n"


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
    reached = result["summary"][result.get("judged", "best")]["iqm"]
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
        "Wanted of the best agent; offline, where steps are updates, of the last one, as published results are.",
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
        peer = peer_of(result["name"], folder)
        other = f"{peer['iqm']:.1f} [{peer['interval'][0]:.1f}, {peer['interval'][1]:.1f}]" if peer else ""
        reached = {True: "yes", False: "no", None: "no peer yet"}[passed(result, folder)]
        wanted = "the peer's" if result["threshold"] is None else f">= {result['threshold']:g}"
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
    parser.add_argument("names", nargs="+", choices=[*PROOFS, "all"])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--runs", type=Path, help="keep the runs here, and resume existing ones")
    parser.add_argument("--minutes", type=float, help="save and stop after this time (needs --runs)")
    parser.add_argument("--data", type=Path, help="the folder of the offline proofs' datasets")
    args = parser.parse_args()
    if args.minutes is not None and args.runs is None:
        parser.error("--minutes needs --runs, to resume the run")
    args.output.mkdir(parents=True, exist_ok=True)
    failed = []
    every = [name for name, proof in PROOFS.items() if args.data is not None or not proof.data]
    for name in every if "all" in args.names else args.names:
        result = prove(name, args.device, args.runs, args.minutes, args.data)
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
