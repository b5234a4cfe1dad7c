"""The folder of a study: configs, logs and directories of its runs, and how far each has come."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.yaml_loading import dump_yaml
from rl_training.core.checks import UserError, one_line
from rl_training.files.atomic import make_directory, read_json, replace_file, to_json
from rl_training.files.run_directory import RunRecord
from rl_training.studies.planned_runs import PlannedRun

TAIL_BYTES = 8192  # of a log or a metrics file, enough for its last line


@dataclass(frozen=True)
class RunState:
    """How far a run has come, from its files."""

    status: str  # new, stopped (it will be resumed), finished, failed (seeds diverged; nothing is left to run)
    step: int = 0
    metrics: dict[str, Any] | None = None
    note: str = ""  # why its resume was inexact, or which seeds failed

    @property
    def ended(self) -> bool:
        """Whether nothing is left to run."""
        return self.status in ("finished", "failed")


class StudyFolder:
    """The files of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run_dir(self, name: str) -> Path:
        return self.path / "runs" / name

    def log(self, name: str) -> Path:
        return self.path / "logs" / f"{name}.txt"

    def config(self, name: str) -> Path:
        return self.path / "configs" / f"{name}.yaml"

    def lock(self, name: str) -> Path:
        return self.path / "locks" / f"{name}.lock"

    def write(self, runs: Sequence[PlannedRun], source: Path | str | None) -> None:
        """Write the configs of the runs, their list and a copy of the study's file."""
        for name in ("configs", "logs", "locks", "runs"):
            make_directory(self.path / name)
        for run in runs:
            text = dump_yaml(run.config.to_dict()).encode()
            path = self.config(run.name)
            if not path.exists() or path.read_bytes() != text:
                replace_file(path, text)
        listed = [{"name": run.name, "label": run.label} for run in runs]
        replace_file(self.path / "runs.json", to_json(listed, indent=1))
        if source is not None:
            replace_file(self.path / "study.yaml", Path(source).read_bytes())

    def planned(self) -> list[tuple[str, str]]:
        """The name and the label of every run of the study as it was last started."""
        try:
            listed = read_json(self.path / "runs.json")
            return [(str(one["name"]), str(one["label"])) for one in listed]
        except (KeyError, TypeError) as error:
            raise UserError(f"{self.path / 'runs.json'}: not the list of a study's runs") from error

    def others(self, names: Iterable[str]) -> list[str]:
        """Runs in the folder that are not in the study any more: kept, and not continued."""
        known = set(names)
        place = self.path / "runs"
        return sorted(one.name for one in place.iterdir() if one.name not in known) if place.is_dir() else []

    def state(self, name: str) -> RunState:
        """How far a run has come."""
        run_dir = self.run_dir(name)
        if not (run_dir / "run.json").exists():
            return RunState("new")
        try:
            values = RunRecord.read(run_dir).values
        except UserError:  # a damaged record: `resume` reports it
            return RunState("stopped", self.newest_step(name))
        note = str(values["resume_note"] or "inexact") if values["resume"] == "inexact" else ""
        failed = values["failed_seeds"]
        if values["status"] == "failed" and failed and len(failed) == len(values.get("seeds", ())):
            # Every seed diverged: a resume would diverge at the same update.
            return RunState("failed", self.newest_step(name), values["metrics"], one_line(values.get("failure")))
        if values["status"] != "finished":
            return RunState("stopped", self.newest_step(name), values["metrics"], note)
        step = int(values["metrics"].get("global_step", 0))
        if failed:
            return RunState("failed", step, values["metrics"], f"failed seeds: {', '.join(failed)}")
        return RunState("finished", step, values["metrics"], note)

    def newest_step(self, name: str) -> int:
        """The step of the newest checkpoint."""
        found = (self.run_dir(name) / "checkpoints").glob("step_*")  # without torch, for jobs that only start a process
        numbers = [path.name.removeprefix("step_") for path in found]
        return max((int(number) for number in numbers if number.isdecimal()), default=0)

    def shown_step(self, name: str) -> int:
        """The step of the newest row of metrics, for the display."""
        for line in reversed(_tail(self.run_dir(name) / "metrics.jsonl").splitlines()):
            try:
                return int(json.loads(line)["step"])
            except (ValueError, KeyError, TypeError):
                continue
        return self.newest_step(name)

    def last_line(self, name: str) -> str:
        """The last line of a run's log, or what its record has instead: why it failed."""
        lines = [one_line(line) for line in _tail(self.log(name)).splitlines() if line.strip()]
        if lines:
            return lines[-1].removeprefix("error: ")
        try:
            return one_line(RunRecord.read(self.run_dir(name)).values.get("failure") or "")
        except UserError:
            return ""


def _tail(path: Path) -> str:
    """The last bytes of a file, as text."""
    try:
        with path.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
