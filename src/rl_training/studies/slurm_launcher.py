"""Runs of a study as jobs of Slurm: arrays written from a template, which stay in the queue without the sweep."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import string
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rl_training.core.assets import ASSETS
from rl_training.core.checks import UserError, one_line
from rl_training.files.atomic import make_directory, read_json, replace_file, to_json
from rl_training.studies.folder import StudyFolder
from rl_training.studies.launchers import LOST
from rl_training.studies.slurm_job import exit_file
from rl_training.studies.study_file import Resources

PYTHON = sys.executable
TEMPLATE = ASSETS / "templates" / "slurm.sbatch"
ASK_SECONDS = 5.0  # between two questions to Slurm
GONE_AFTER = 3  # questions in a row in which a job is missing: a requeued one may be between two states


class SlurmLauncher:
    """Runs as tasks of Slurm job arrays."""

    detaches = True

    def __init__(
        self,
        folder: StudyFolder,
        resources: Resources,
        memory: int,
        gpu_share: float,
        options: Sequence[str] = (),
        jobs: int | None = None,
    ) -> None:
        self.folder, self.resources, self.memory, self.jobs = folder, resources, memory, jobs
        self.options = [*options, *([f"--gres=gpu:{int(-(-gpu_share // 1))}"] if gpu_share else [])]
        for program in ("sbatch", "squeue", "scancel"):
            if shutil.which(program) is None:
                raise UserError(f"Slurm is not available here: there is no {program}")
        self.ask_seconds = float(os.environ.get("RL_TRAINING_SLURM_SECONDS", ASK_SECONDS))
        self._next, self._missing = 0.0, dict[str, int]()
        self._running: set[str] = set()
        self._job: dict[str, str] = self._recorded()  # of each run: `<array>_<task>`
        self._queued = self._ask()
        self._new: list[str] = []

    def describe(self) -> str:
        cores = f"{self.resources.cpus} core{'s' * (self.resources.cpus > 1)}"
        again = f"; {len(self._queued)} are in the queue already" if self._queued else ""
        at_once = f"at most {self.jobs} at a time" if self.jobs else "as many at a time as Slurm allows"
        return f"{at_once}, in an array of Slurm jobs{again}; each has {cores}"

    def free(self) -> int:
        return sys.maxsize

    def start(self, name: str) -> None:
        self._running.add(name)
        if name not in self._queued:
            self._new.append(name)

    def poll(self) -> list[tuple[str, int]]:
        if self._new:
            self._submit(self._new)
            self._new = []
        if time.monotonic() < self._next or not self._running:
            return []
        present = self._ask()
        self._next = time.monotonic() + self.ask_seconds
        ended = []
        for name in sorted(self._running):
            self._missing[name] = 0 if name in present else self._missing.get(name, 0) + 1
            code = None if name in present else self._exit_code(name)
            if code is not None:
                ended.append((name, code))
                self._running.discard(name)
                self._queued.discard(name)
        return ended

    def _exit_code(self, name: str) -> int | None:
        """The exit code of a run that is not in the queue; None where it may come back."""
        try:
            return int(exit_file(self.folder, name).read_text())
        except (OSError, ValueError):
            return LOST if self._missing[name] >= GONE_AFTER else None

    def stop(self, number: int, name: str | None = None) -> None:
        jobs = [self._job[one] for one in self._running if name in (None, one) and one in self._job]
        if jobs:
            _call("scancel", *jobs)

    def close(self) -> None:
        """Nothing: jobs stay in Slurm."""

    def _submit(self, names: Sequence[str]) -> None:
        place = self.folder.path / "slurm"
        make_directory(place / "exits")
        number = len(list(place.glob("*.sbatch")))
        listing, script = place / f"{number}.txt", place / f"{number}.sbatch"
        for name in names:
            exit_file(self.folder, name).unlink(missing_ok=True)
        replace_file(listing, ("\n".join(names) + "\n").encode())
        replace_file(script, self._script(listing, names).encode())
        answer = _call("sbatch", "--parsable", str(script))
        job = answer.strip().partition(";")[0]
        if not re.fullmatch(r"[0-9]+", job):
            raise UserError(f"sbatch answered {one_line(answer)!r}, not the number of a job")
        for index, name in enumerate(names):
            self._job[name], self._missing[name] = f"{job}_{index}", 0
        replace_file(place / "jobs.json", to_json(self._job, indent=1))
        self._queued |= set(names)

    def _script(self, listing: Path, names: Sequence[str]) -> str:
        quote = shlex.quote
        return string.Template(TEMPLATE.read_text()).substitute(
            name=re.sub(r"[^A-Za-z0-9._-]", "_", self.folder.path.name),
            last=len(names) - 1,
            throttle=f"%{self.jobs}" if self.jobs else "",
            cpus=self.resources.cpus,
            memory=max(self.memory // 2**20, 1),
            log=listing.parent / "%A_%a.txt",
            options="\n".join(f"#SBATCH {option}" for option in self.options),
            cwd=quote(os.getcwd()),
            list=quote(str(listing)),
            python=quote(PYTHON),
            folder=quote(str(self.folder.path)),
        )

    def _recorded(self) -> dict[str, str]:
        path = self.folder.path / "slurm" / "jobs.json"
        found = read_json(path) if path.exists() else {}
        if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
            raise UserError(f"{path}: not a record of Slurm jobs")
        return found

    def _ask(self) -> set[str]:
        """The runs whose jobs are in Slurm's queue: waiting, running or about to be requeued."""
        if not self._job:
            return set()
        arrays = ",".join(sorted({job.partition("_")[0] for job in self._job.values()}, key=int))
        answer = subprocess.run(
            ["squeue", "--noheader", "--array", "--format=%i", f"--jobs={arrays}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if answer.returncode != 0 and "Invalid job id" not in answer.stderr:
            return set(self._running)  # Slurm's controller is away for a moment: nothing is known
        present = {line.strip() for line in answer.stdout.splitlines()}
        return {name for name, job in self._job.items() if job in present}


def _call(*words: str) -> str:
    """The output of a program of Slurm; rejects a call that fails, in one line."""
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise UserError(f"{words[0]} failed: {one_line(answer.stderr or answer.stdout)}")
    return answer.stdout
