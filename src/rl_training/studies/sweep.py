"""`rl-training sweep`: plan the runs of a study file, run what is left of them, list what came of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError
from rl_training.core.statistics import headline, summarize
from rl_training.files.run_directory import RunLock, RunRecord
from rl_training.report.page import write_report
from rl_training.studies.choose_launcher import LaunchOptions, choose_launcher
from rl_training.studies.display import StudyDisplay
from rl_training.studies.folder import RunState, StudyFolder
from rl_training.studies.needs import Needs, needs_of
from rl_training.studies.page import write_page
from rl_training.studies.planned_runs import PlannedRun, sweep_runs
from rl_training.studies.scheduler import FULL, Outcome, Scheduler
from rl_training.studies.study_file import StudyFile, SweepFile, load_study, reject, study_folder

MAX_LISTED = 5


@dataclass(frozen=True)
class Plan:
    """The runs of a study, in its folder."""

    folder: StudyFolder
    file: Path
    study: StudyFile
    runs: list[PlannedRun]
    needs: dict[str, Needs]

    def states(self) -> dict[str, RunState]:
        return {run.name: self.folder.state(run.name) for run in self.runs}


def plan_sweep(path: str | Path) -> Plan:
    """Read a study's file and plan its runs; reports all problems at once."""
    study, source, problems = load_study(path, SweepFile)
    if study is None:
        reject(problems, source)
        raise AssertionError("a study without problems is there")
    folder = study_folder(study, path)
    runs, more = sweep_runs(study, source, folder)
    needs, unfit = needs_of(runs)
    reject([*problems, *more, *unfit], source)
    return Plan(StudyFolder(folder), Path(path), study, runs, needs)


def plan_lines(plan: Plan, launcher: str) -> list[str]:
    """The plan for people: the runs by status, how many run at a time, and runs that are not in the study any more."""
    states = [state.status for state in plan.states().values()]
    counts = {"finished": "finished", "failed": "with failed seeds", "stopped": "to resume", "new": "new"}
    text = ", ".join(f"{states.count(status)} {words}" for status, words in counts.items() if status in states)
    lines = [f"study {plan.folder.path}: {len(plan.runs)} runs ({text})", f"plan  {launcher}"]
    others = plan.folder.others(run.name for run in plan.runs)
    if others:
        more = f" and {len(others) - MAX_LISTED} more" if len(others) > MAX_LISTED else ""
        listed = ", ".join(others[:MAX_LISTED])
        lines.append(f"kept  {len(others)} runs that are not in the study any more: {listed}{more}")
    return lines


def run_sweep(plan: Plan, options: LaunchOptions, show_progress: bool = True) -> Outcome:
    """Run what is left of a study, and write its files; a folder is used by one sweep at a time."""
    plan.folder.path.mkdir(parents=True, exist_ok=True)
    with RunLock(plan.folder.path):
        plan.folder.write(plan.runs, plan.file)
        launcher = choose_launcher(plan.folder, plan.study.resources, plan.runs, plan.needs, options)
        for line in plan_lines(plan, launcher.describe()):
            print(line, file=sys.stderr)
        states = plan.states()
        left = [run for run in plan.runs if not states[run.name].ended]
        labels = {run.name: run.label for run in plan.runs}
        totals = {run.name: run.config.total_timesteps for run in plan.runs}
        display = StudyDisplay(plan.folder, labels, totals, enabled=show_progress)
        scheduler = Scheduler(plan.folder, launcher, display)
        for name, state in states.items():
            if state.status == "failed":
                scheduler.outcome.failed[name] = state.note
        return scheduler.run(left)


def failure_lines(plan: Plan, outcome: Outcome) -> list[str]:
    """The failures of a study, one line each; on a full disk one line for all."""
    labels = {run.name: run.label for run in plan.runs}
    if outcome.full_disk:
        left = sum(not state.ended for state in plan.states().values())
        again = "free some space and start the same command again"
        return [f"{plan.folder.path}: {FULL[0]}; {left} runs are not finished, what they have saved is kept; {again}"]
    return [f"{labels[name]}: {reason} (log {plan.folder.log(name)})" for name, reason in outcome.failed.items()]


def finish_study(study_dir: str | Path) -> list[Path]:
    """Print a table of a study's runs, write reports that a kill has prevented, and return the run directories."""
    folder = StudyFolder(Path(study_dir))
    rows, found = [], []
    for name, label in folder.planned():
        state, run_dir = folder.state(name), folder.run_dir(name)
        rows.append((label, state.status, _result(state.metrics or {}), "inexact" if _inexact(state) else ""))
        if state.status != "new":
            found.append(run_dir)
        if state.status == "finished":
            _write_missing_report(run_dir)
    print(text_table([("run", "status", "return", "resume"), *rows]))
    print(f"study {folder.path}")
    return found


def write_study_report(study_dir: str | Path) -> Path | None:
    """Write one report of all runs of a study; None, with a line on stderr, if there is nothing to report."""
    folder = StudyFolder(Path(study_dir))
    runs = [folder.run_dir(name) for name, _ in folder.planned() if folder.state(name).status != "new"]
    output = folder.path / "report.html"
    try:
        problems = write_page(runs, output)
    except (OSError, UserError) as error:
        print(f"no report of {folder.path}: {error}", file=sys.stderr)
        return None
    for problem in problems:
        print(problem, file=sys.stderr)
    return output


def answer(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    """The result of a sweep for `--json`."""
    runs = [
        {"name": name, "run_dir": str(plan.folder.run_dir(name)), "status": state.status, "metrics": state.metrics}
        for name, state in plan.states().items()
    ]
    return {"study": str(plan.folder.path), "runs": runs, "failed": outcome.failed}


def _inexact(state: RunState) -> bool:
    return state.status == "finished" and bool(state.note)


def _result(metrics: dict[str, Any]) -> str:
    means = metrics.get("eval_return_means") or []
    return headline(summarize(means)) if len(means) > 1 else f"{means[0]:.1f}" if means else ""


def _write_missing_report(run_dir: Path) -> None:
    from rl_training.config.yaml_loading import load_yaml

    try:
        wanted = load_yaml(run_dir / "config.yaml").values.get("report", True)
        if wanted and RunRecord.read(run_dir) and not (run_dir / "report.html").exists():
            write_report(run_dir)
    except (OSError, UserError) as error:
        print(f"no report of {run_dir}: {error}", file=sys.stderr)


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of text in columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    cells = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in rows]
    return "\n".join("  ".join(row).rstrip() for row in cells)
