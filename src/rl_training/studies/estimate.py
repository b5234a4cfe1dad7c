"""The dry run of a sweep: its plan with estimates of time, measured by short trial runs, and of disk."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.config.yaml_loading import dump_yaml
from rl_training.core.checks import one_line
from rl_training.core.machine import gibibytes
from rl_training.files.json_lines import read_rows
from rl_training.files.run_directory import RunRecord
from rl_training.run.progress import format_clock, format_rate
from rl_training.run.validate import learner_class_or_problem, setting_names
from rl_training.studies.choose_launcher import LaunchOptions, choose_launcher
from rl_training.studies.folder import StudyFolder
from rl_training.studies.planned_runs import PlannedRun
from rl_training.studies.process import PROGRAM
from rl_training.studies.sweep import Plan, plan_lines

TRIAL_SECONDS = 5.0  # of training, after the start
MAX_START_SECONDS = 120.0
Kind = tuple[str, str, int]  # algorithm, environment, number of seeds


def dry_run(plan: Plan, options: LaunchOptions) -> dict[str, Any]:
    """The plan with estimates; `lines` are for people. Nothing is written."""
    launcher = choose_launcher(plan.folder, plan.study.resources, plan.runs, plan.needs, options)
    at_once = max(launcher.free(), 1)
    states = plan.states()
    left = [run for run in plan.runs if not states[run.name].ended]
    speeds = {kind: _speed(plan.folder, [run for run in left if _kind(run) == kind]) for kind in map(_kind, left)}
    known = [kind for kind in speeds if speeds[kind] is not None]
    seconds = sum(_seconds(run, states[run.name].step, speeds[_kind(run)]) for run in left) / at_once
    disk, free = sum(plan.needs[run.name].disk for run in left), shutil.disk_usage(_existing(plan.folder.path)).free
    lines = [*plan_lines(plan, launcher.describe())]
    launcher.close()
    lines += [f"speed {' '.join(map(str, kind[:2]))}, {_shown(kind, speeds[kind])}" for kind in speeds]
    unknown = f", without {len(speeds) - len(known)} kinds of runs of unknown speed" if len(known) < len(speeds) else ""
    lines.append(f"time  about {format_clock(seconds)}{unknown}")
    lines.append(f"disk  up to {gibibytes(disk)}, {gibibytes(free)} are free" + "; too little" * (disk > free))
    return {"runs": len(left), "at_once": at_once, "seconds": seconds, "disk_bytes": disk, "lines": lines}


def _kind(run: PlannedRun) -> Kind:
    return run.config.algo, run.config.env_id, len(run.config.seed_list)


def _shown(kind: Kind, speed: tuple[float, float] | None) -> str:
    seeds = f"{kind[2]} seed{'s' * (kind[2] > 1)}"
    return f"{seeds}: unknown" if speed is None else f"{seeds}: {format_rate(speed[1])} steps/s after {speed[0]:.0f} s"


def _seconds(run: PlannedRun, step: int, speed: tuple[float, float] | None) -> float:
    return 0.0 if speed is None else speed[0] + (run.config.total_timesteps - step) / speed[1]


def _speed(folder: StudyFolder, runs: list[PlannedRun]) -> tuple[float, float] | None:
    """Seconds to start and steps per second of a kind of run: of one that is finished, else of a short trial run."""
    config = runs[0].config
    place = folder.path / "runs"
    for record in place.glob(f"{config.algo}-*/run.json") if place.is_dir() else ():
        values = RunRecord.read(record.parent).values
        same = (values.get("env_id"), len(values.get("seeds", ()))) == (config.env_id, len(config.seed_list))
        if same and values["status"] == "finished" and values.get("elapsed"):
            return 0.0, values["metrics"].get("global_step", 0) / values["elapsed"]
    with tempfile.TemporaryDirectory() as scratch:
        return _tried(config, Path(scratch))


def _tried(config: TrainConfig, scratch: Path) -> tuple[float, float] | None:
    """The speed of a run of a few seconds that learns from the start, without compiling."""
    cls, _ = learner_class_or_problem(config.algo)
    early = {"learning_starts": 1} if cls is not None and "learning_starts" in setting_names(cls) else {}
    trial = replace(
        config,
        output_dir=scratch,
        run_name="trial",
        log_interval=max(config.num_envs, 20),
        eval_episodes=0,
        compile="off",
        video=False,
        report=False,
        writers=(),
        algo_kwargs={**config.algo_kwargs, **early},
    )
    (scratch / "trial.yaml").write_text(dump_yaml(trial.to_dict()))
    words = [*PROGRAM, "train", "--config", str(scratch / "trial.yaml"), "--quiet"]
    begun = time.monotonic()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    metrics = scratch / "trial" / "metrics.jsonl"
    while process.poll() is None and not any(read_rows(metrics)) and time.monotonic() - begun < MAX_START_SECONDS:
        time.sleep(0.1)
    started = time.monotonic() - begun
    try:
        process.wait(TRIAL_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
    message = process.communicate()[1]
    rows = [(row["step"], row["time/time_elapsed"]) for row in read_rows(metrics) if "time/time_elapsed" in row]
    if not rows:
        print(f"the trial run failed: {one_line((message.splitlines() or [''])[-1])}")
        return None
    first, last = rows[len(rows) // 2 if len(rows) > 4 else 0], rows[-1]
    if last[1] <= first[1]:
        first = (0, 0.0)
    return started, (last[0] - first[0]) / max(last[1] - first[1], 1e-9)


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
