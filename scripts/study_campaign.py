"""Shared by the campaigns that disturb a study: the undisturbed one, and the comparison of every run with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from harness import ROOT
from provenance import write_result
from resume_harness import compare_runs

from rl_training.config.yaml_loading import dump_yaml
from rl_training.studies.folder import StudyFolder

__all__ = ["MAX_SECONDS", "ROOT", "StudyCampaign", "children", "kill", "write_result"]
MAX_SECONDS = 1500


def reached(unequal: dict[str, Any]) -> str:
    """The outcome in words."""
    return "every run equal to the undisturbed study's" if not unequal else f"unequal: {', '.join(unequal)}"


class StudyCampaign:
    """A study in a folder, run once without disturbance and once with."""

    def __init__(self, folder: Path, study: dict[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "study.yaml").write_text(dump_yaml(study))
        self.study = StudyFolder(folder / "studies" / study["name"])

    def sweep(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """`rl-training sweep`, with its lines in a log."""
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
        with (self.folder / "log.txt").open("ab") as log:
            words = [sys.executable, "-m", "rl_training", "sweep", "study.yaml", *options]
            return subprocess.Popen(words, cwd=self.folder, env=env, stdout=log, stderr=log)

    def undisturbed(self) -> float:
        """The study without disturbance; its folder is moved aside, so that all paths in the files are equal."""
        started = time.monotonic()
        if self.sweep("--jobs", "2").wait(MAX_SECONDS) != 0:
            raise SystemExit(f"the undisturbed study failed; see {self.folder / 'log.txt'}")
        shutil.move(self.study.path, self.folder / "undisturbed")
        return time.monotonic() - started

    def training(self) -> dict[int, str]:
        """The processes that train runs of the study, with the name of the run."""
        found = {}
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_text().split("\0")
                if any(word in ("train", "resume") for word in words[:5]):
                    mine = [word for word in words if word.startswith(str(self.study.path))]
                    found |= {int(path.parent.name): Path(word).name.removesuffix(".yaml") for word in mine}
        return found

    def differences(self) -> dict[str, list[str]]:
        """What differs from the undisturbed study, by run."""
        names = [name for name, _ in self.study.planned()]
        aside = self.folder / "undisturbed" / "runs"
        return {name: compare_runs(aside / name, self.study.run_dir(name)) for name in names}


def children(parents: set[int]) -> dict[int, str]:
    """Every process below some processes, with its command line."""
    found: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = (parent, (path / "cmdline").read_text().replace("\0", " "))
    below: dict[int, str] = {}
    new = set(parents)
    while new:
        new = {pid for pid, (parent, _) in found.items() if parent in new and pid not in below}
        below |= {pid: found[pid][1] for pid in new}
    return below


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
