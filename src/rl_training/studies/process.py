"""A run of a study as a process: `rl-training train` or `rl-training resume`, one at a time for each run."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from rl_training.core.checks import UserError
from rl_training.core.signals import StopSignals, active_signals, deferred
from rl_training.studies.folder import StudyFolder

PROGRAM = (sys.executable, "-m", "rl_training")
PR_SET_PDEATHSIG = 1  # Linux
POLL_SECONDS = 0.05  # a signal that reaches both processes must count as one, see `core/signals.py`
_prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None


class RunInUse(Exception):
    """Another process trains this run: one that a killed sweep left, or one on another machine."""


def command(folder: StudyFolder, name: str) -> list[str]:
    """The arguments that start or resume a run; removes what a kill left before there was a run."""
    run_dir = folder.run_dir(name)
    if (run_dir / "run.json").exists():
        return ["resume", str(run_dir), "--quiet"]
    if run_dir.exists():
        shutil.rmtree(run_dir)
    return ["train", "--config", str(folder.config(name)), "--quiet"]


def start_planned(
    folder: StudyFolder, name: str, environment: Mapping[str, str] | None = None, on_parent_death: int = signal.SIGTERM
) -> subprocess.Popen[bytes] | None:
    """Start or resume a run; None where it has ended. Raises `RunInUse`.

    The process inherits the run's lock, which the kernel releases when it ends, however it ends.
    """
    with folder.lock(name).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunInUse(name) from error
        if folder.state(name).ended:
            return None
        words = [*PROGRAM, *command(folder, name)]
        with folder.log(name).open("ab") as log:
            return subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # Ctrl-C reaches the sweep alone, which stops its runs
                pass_fds=(lock.fileno(),),
                preexec_fn=lambda: _end_with_parent(on_parent_death),
            )


def _end_with_parent(number: int) -> None:
    """In a new process: receive a signal when its parent dies, where the system can."""
    if _prctl is not None:
        _prctl(PR_SET_PDEATHSIG, number)


def in_use(folder: StudyFolder, name: str) -> bool:
    """Whether a process trains this run."""
    try:
        with folder.lock(name).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True


def run_planned(path: str | Path, name: str, environment: Mapping[str, str] | None = None) -> int:
    """Execute a run to its end and return its exit code: what Ray's tasks and Slurm's jobs call.

    Where another process still trains it, wait until that has ended, and continue what it left.
    """
    folder, signals = StudyFolder(Path(path)), active_signals()
    if not folder.config(name).exists():
        where = socket.gethostname()
        raise UserError(f"{folder.path}: not seen on {where}; the folder of a study must be shared by all machines")
    process = None
    with deferred():
        while True:
            try:
                process = start_planned(folder, name, environment, on_parent_death=signal.SIGKILL)
                break
            except RunInUse:
                signals.check()
                time.sleep(POLL_SECONDS)
        return 0 if process is None else _wait(process, signals)


def _wait(process: subprocess.Popen[bytes], signals: StopSignals) -> int:
    """The exit code of a process, which gets the signals of this one, so that it saves."""
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_SECONDS)
            if signals.received is not None and not signals.stopping:
                signals.stopping = True
                process.send_signal(signals.received)
    except BaseException:  # a cancelled task
        process.terminate()
        process.wait()
        raise
