"""`rl-training tune`: search the settings of an algorithm with Optuna, each trial a run of several seeds."""

from __future__ import annotations

import csv
import io
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_training.config.train_config import FIELD_NAMES, TrainConfig
from rl_training.config.yaml_loading import dump_yaml
from rl_training.core.checks import ConfigError, UserError, one_line
from rl_training.files.atomic import make_directory, replace_file
from rl_training.files.run_directory import RunLock
from rl_training.run.progress import format_value
from rl_training.studies.choose_launcher import LaunchOptions, choose_launcher
from rl_training.studies.display import StudyDisplay
from rl_training.studies.folder import RunState, StudyFolder
from rl_training.studies.launchers import Launcher
from rl_training.studies.needs import needs_of
from rl_training.studies.objective import rungs_of
from rl_training.studies.planned_runs import PlannedRun, choice_config, short_value
from rl_training.studies.scheduler import Outcome, Scheduler
from rl_training.studies.study_file import reject, study_folder
from rl_training.studies.sweep import text_table
from rl_training.studies.trials import REASON, Trials
from rl_training.studies.tune_file import TuneFile, load_tune
from rl_training.studies.tune_page import write_tune_page
from rl_training.studies.variants import Choice

SHOWN_TRIALS = 10
OF_ONE_RUN = ("output_dir", "run_name", "seed", "seeds")


@dataclass(frozen=True)
class Tuning:
    """A tuning study in its folder."""

    study: TuneFile
    file: Path
    folder: StudyFolder
    base: TrainConfig

    def config(self, settings: dict[str, Any]) -> TrainConfig:
        """The config of a trial with these settings."""
        study, choices = self.study, [Choice(name, value, ()) for name, value in settings.items()]
        return choice_config(study, study.algo, study.env_id, choices, study.seed_list)

    def run(self, number: int, settings: dict[str, Any]) -> PlannedRun:
        name = f"trial-{number:04d}"
        config = replace(self.config(settings), output_dir=self.folder.path / "runs", run_name=name)
        return PlannedRun(name, config, tuple(settings.items()), f"trial {number}")


def load_tuning(path: str | Path) -> Tuning:
    """Read a study's file; its base config must fit the environment."""
    study, source = load_tune(path)
    base = choice_config(study, study.algo, study.env_id, (), study.seed_list)
    folder = study_folder(study, path)
    reject(needs_of([PlannedRun("base", base)])[1], source)
    return Tuning(study, Path(path), StudyFolder(folder), base)


class Tuner(Scheduler):
    """Runs the trials of a study: asks for settings, prunes at rungs, records results."""

    def __init__(
        self, tuning: Tuning, trials: Trials, launcher: Launcher, display: StudyDisplay, jobs: int | None = None
    ) -> None:
        super().__init__(tuning.folder, launcher, display)
        self.tuning, self.trials, self.jobs = tuning, trials, jobs
        self.in_progress: dict[str, Any] = {}
        self._reported: dict[str, int] = {}  # evaluations of each trial
        self._left = [(trial, trials.values(trial)) for trial in trials.in_flight()]

    def add_runs(self) -> bool:
        while self._room() > 0 and not self.outcome.full_disk:
            if self._left:
                trial, settings = self._left.pop(0)
            elif self.trials.count < self.tuning.study.trials:
                trial = self.trials.next()
                settings = self.trials.values(trial)
            else:
                return False
            self._add(trial, settings)
        return not self.outcome.full_disk and bool(self._left or self.trials.count < self.tuning.study.trials)

    def _room(self) -> int:
        """How many trials may be added: Slurm's queue takes any number, but the sampler learns from those before."""
        most = self.launcher.free() - len(self.waiting)
        return most if self.jobs is None else min(most, self.jobs - len(self.running) - len(self.waiting))

    def _add(self, trial: Any, settings: dict[str, Any]) -> None:
        """Queue a trial; one whose settings contradict each other is pruned, one that had ended is recorded."""
        try:
            run = self.tuning.run(trial.number, settings)
            problems = needs_of([run])[1]
        except ConfigError as error:
            problems = error.problems
        if problems:  # the sampler learns to avoid it
            reason = one_line(problems[0])
            self.trials.finish(trial, None, "PRUNED", reason)
            self.display.note(f"invalid  trial {trial.number}: {reason}")
            return
        self.in_progress[run.name] = trial
        self.folder.write([run], None)
        self.display.add(run.name, run.label, run.config.total_timesteps)
        self.display.note(f"trial {trial.number}: {', '.join(f'{k} {short_value(v)}' for k, v in settings.items())}")
        state = self.folder.state(run.name)
        if state.ended:  # it had finished when the study was killed
            self.concluded(run.name, state)
        else:
            self.waiting.append(run.name)

    def watch(self) -> None:
        for name in sorted(self.running - self.pruned):
            if self._prunes(name):
                self.pruned.add(name)
                self.launcher.stop(signal.SIGTERM, name)

    def _prunes(self, name: str) -> bool:
        """Report new evaluations of a trial; True if it is pruned, which is recorded."""
        trial, study = self.in_progress[name], self.tuning.study
        final = self.tuning.base.total_timesteps
        rungs = [(step, value) for step, value in self._rungs(name) if step < final]
        if len(rungs) == self._reported.get(name, 0):
            return False
        self._reported[name] = len(rungs)
        step = self.trials.report(trial, rungs)
        if step is None:
            return False
        self.trials.finish(trial, None, "PRUNED", f"pruned at step {step} ({study.pruning.kind})")
        return True

    def _rungs(self, name: str) -> list[tuple[int, float]]:
        study = self.tuning.study
        seeds, goal = len(study.seed_list), study.objective
        return rungs_of(self.folder.run_dir(name), seeds, goal.spread_penalty, goal.evaluations)

    def concluded(self, name: str, state: RunState) -> None:
        trial = self.in_progress[name]
        if name in self.pruned or self._prunes(name):
            return
        if state.status == "failed":  # diverged: a result, and the sampler learns to avoid it
            self.outcome.failed.pop(name, None)
            self.trials.finish(trial, None, "PRUNED", state.note)
            return
        rungs = self._rungs(name)
        if not rungs:
            self.trials.finish(trial, None, "FAIL", "no evaluation")
            return
        self.trials.finish(trial, rungs[-1][1])
        best = self.trials.best()
        self.display.note(
            f"value    trial {trial.number}: {rungs[-1][1]:.4g} (best {best.value:.4g}, trial {best.number})"
        )


def run_tuning(tuning: Tuning, options: LaunchOptions, show_progress: bool = True) -> tuple[Outcome, Trials]:
    """Run the trials that are left; a folder is used by one program at a time."""
    if options.launcher == "slurm" and options.jobs is None:
        raise UserError("tune with launch slurm needs jobs=...: the number of trials at a time")
    tuning.folder.path.mkdir(parents=True, exist_ok=True)
    with RunLock(tuning.folder.path):
        make_directory(tuning.folder.path)
        replace_file(tuning.folder.path / "study.yaml", tuning.file.read_bytes())
        trials = Trials(tuning.study, tuning.folder.path, tuning.base.steps_between_evaluations)
        runs = [PlannedRun("base", tuning.base)]
        copies = runs * tuning.study.trials  # how many run at a time is not limited by one run
        launcher = choose_launcher(tuning.folder, tuning.study.resources, copies, needs_of(runs)[0], options)
        ended, left = trials.count - len(trials.in_flight()), len(trials.in_flight())
        print(f"study {tuning.folder.path}: {tuning.study.trials} trials ({ended} ended, {left} to resume)\n"
              f"plan  {launcher.describe()}", file=sys.stderr)  # fmt: skip
        display = StudyDisplay(tuning.folder, {}, {}, enabled=show_progress)
        outcome = Tuner(tuning, trials, launcher, display, options.jobs).run([])
        write_trials(tuning, trials)
        return outcome, trials


def trial_rows(trials: Trials) -> list[dict[str, Any]]:
    """The trials as plain rows: number, state, value, settings, why it ended early."""
    return [
        {"trial": one.number, "state": one.state.name.lower(), "value": one.value, **trials.settings(one),
         "reason": one.user_attrs.get(REASON, "")}
        for one in trials.all()
    ]  # fmt: skip


def write_trials(tuning: Tuning, trials: Trials) -> None:
    """Write trials.csv, the report, and importance.csv where there are enough trials."""
    rows = trial_rows(trials)
    columns = ["trial", "state", "value", *tuning.study.space, "reason"]
    replace_file(tuning.folder.path / "trials.csv", _csv(columns, rows))
    importance = [{"setting": name, "importance": value} for name, value in trials.importance().items()]
    if importance:
        replace_file(tuning.folder.path / "importance.csv", _csv(["setting", "importance"], importance))
    title = f"{tuning.base.algo.upper()} tuned on {tuning.base.env_id}"
    write_tune_page(tuning.folder.path / "report.html", title, rows, trials.importance())


def _csv(columns: list[str], rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def result_lines(tuning: Tuning, trials: Trials) -> list[str]:
    """The best trials and the importance of settings, for people."""
    rows = [row for row in trial_rows(trials) if row["state"] == "complete"]
    rows.sort(key=lambda row: -row["value"])
    names = list(tuning.study.space)
    cells = [
        [str(row["trial"]), f"{row['value']:.4g}", *(_shown(row.get(name)) for name in names)]
        for row in rows[:SHOWN_TRIALS]
    ]
    lines = [text_table([["trial", "value", *names], *cells])] if rows else ["no trial has finished"]
    importance = trials.importance()
    if importance:
        shown = [[name, f"{value:.2f}"] for name, value in importance.items()]
        lines += ["", text_table([["setting", "importance"], *shown])]
    return [*lines, f"study {tuning.folder.path}"]


def _shown(value: Any) -> str:
    return format_value(value) if isinstance(value, float) else str(value)


def write_best(tuning: Tuning, trials: Trials, path: str | Path) -> int:
    """Write the config of the best trial for `rl-training train --config`; returns the trial's number."""
    best = trials.best()
    if best is None:
        raise UserError(f"{tuning.folder.path}: no trial has finished, so there is no best one")
    values = tuning.config(trials.settings(best)).to_dict()
    default = TrainConfig(algo="-", env_id="-").to_dict()
    kept = {
        name: values[name]
        for name in FIELD_NAMES
        if name not in OF_ONE_RUN and (name in ("algo", "env_id") or values[name] != default[name])
    }
    head = f"# Trial {best.number} of {tuning.study.trials}, value {best.value:.6g} (rl-training tune).\n"
    replace_file(Path(path), (head + dump_yaml(kept)).encode())
    return int(best.number)
