"""The program of one Slurm job: executes a run, saves on a signal, requeues itself before the time limit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from rl_training.core.checks import UserError
from rl_training.core.machine import CORES_VARIABLE
from rl_training.core.signals import Stopped, stop_signals
from rl_training.files.atomic import make_directory, replace_file
from rl_training.studies.folder import StudyFolder
from rl_training.studies.process import run_planned


def exit_file(folder: StudyFolder, name: str) -> Path:
    """The file with the exit code of a run's last job."""
    return folder.path / "slurm" / "exits" / name


def main(path: str, name: str) -> int:
    """Execute a run; its exit code is left in a file, since Slurm forgets jobs soon."""
    folder = StudyFolder(Path(path))
    limit = _TimeLimit()
    signal.signal(signal.SIGUSR1, limit.reached)
    make_directory(exit_file(folder, name).parent)
    exit_file(folder, name).unlink(missing_ok=True)
    cpus = os.environ.get("SLURM_CPUS_PER_TASK")
    try:
        with stop_signals():
            code = run_planned(path, name, {CORES_VARIABLE: cpus} if cpus else None)
    except UserError as error:
        with folder.log(name).open("a") as log:
            print(f"error: {error}", file=log)
        code = error.exit_code
    except Stopped as stop:
        code = 128 + stop.number
    if limit.was_reached:
        return _requeue()
    replace_file(exit_file(folder, name), str(code).encode())
    return code


class _TimeLimit:
    """Whether Slurm has announced the end of the job's time."""

    def __init__(self) -> None:
        self.was_reached = False

    def reached(self, number: int, frame: FrameType | None) -> None:
        if not self.was_reached:
            self.was_reached = True
            os.kill(os.getpid(), signal.SIGTERM)  # as any other reason to save and end


def _requeue() -> int:
    """Put this job into the queue again; it resumes there."""
    array, task = os.environ.get("SLURM_ARRAY_JOB_ID"), os.environ.get("SLURM_ARRAY_TASK_ID")
    job = f"{array}_{task}" if array else os.environ.get("SLURM_JOB_ID", "")
    return subprocess.run(["scontrol", "requeue", job], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
