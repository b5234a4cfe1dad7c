"""Executes the runs of a study: starts and watches them, resumes those that were killed, stops on a signal."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from rl_training.core.signals import Stopped, active_signals, deferred
from rl_training.studies.display import StudyDisplay
from rl_training.studies.folder import RunState, StudyFolder
from rl_training.studies.launchers import Launcher
from rl_training.studies.planned_runs import PlannedRun

POLL_SECONDS = 0.1
MAX_STUCK = 2
FULL_DISK_BYTES = 2**20  # less than this is a full disk
FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
STOPPED = tuple(code for number in (signal.SIGINT, signal.SIGTERM) for code in (128 + number, -number))


@dataclass
class Outcome:
    """What became of the runs of a study."""

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # why, by name
    full_disk: bool = False


class Scheduler:
    """Executes runs on a launcher until all have ended."""

    def __init__(self, folder: StudyFolder, launcher: Launcher, display: StudyDisplay) -> None:
        self.folder, self.launcher, self.display = folder, launcher, display
        self.outcome = Outcome()
        self.waiting: deque[str] = deque()
        self.running: set[str] = set()
        self.pruned: set[str] = set()  # stopped on purpose
        self.kept_step: dict[str, int] = {}  # of each run when it was last started
        self.stuck: Counter[str] = Counter()  # kills in a row without a new checkpoint

    def run(self, runs: Sequence[PlannedRun]) -> Outcome:
        """Execute the runs that have not ended; raises `Stopped` after a signal, when every run has saved."""
        self.waiting.extend(run.name for run in runs)
        signals = active_signals()
        with deferred():
            try:
                while self.add_runs() or self.waiting or self.running:
                    if signals.received is not None:
                        self._stop(signals.received)
                    self._start()
                    for name, code in self.launcher.poll():
                        self._ended(name, code)
                    self.display.update(self.running, len(self.waiting))
                    self.watch()
                    time.sleep(POLL_SECONDS)
            finally:
                self.launcher.close()
                self.display.close()
        return self.outcome

    def add_runs(self) -> bool:
        """Add runs to `waiting`, where a study has more than those it began with; whether there are some left."""
        return False

    def watch(self) -> None:
        """Look at the runs in progress."""

    def concluded(self, name: str, state: RunState) -> None:
        """Use the result of a run that has finished, or whose seeds have failed."""

    def _start(self) -> None:
        while self.waiting and self.launcher.free() > 0 and not self.outcome.full_disk:
            name = self.waiting.popleft()
            self.kept_step[name] = self.folder.newest_step(name)
            self.launcher.start(name)
            self.running.add(name)
            self.display.started(name, self.folder.state(name))
        if self.outcome.full_disk and not self.running:
            self.waiting.clear()

    def _ended(self, name: str, code: int) -> None:
        self.running.discard(name)
        state = self.folder.state(name)
        if state.status == "finished":
            self.outcome.finished.append(name)
            self.display.finished(name, state)
            self.concluded(name, state)
            return
        if state.status == "failed":
            self._fail(name, state.note)
            self.concluded(name, state)
        elif name in self.pruned:
            self.display.note(f"pruned   {self.display.labels[name]} at step {state.step:,}")
        elif code < 0 and code not in STOPPED and self._may_continue(name):
            self.waiting.appendleft(name)
            self.display.killed(name, code)
        elif code in STOPPED:
            self._fail(name, f"stopped at step {state.step} from outside; the same command resumes it")
        elif code < 0:
            self._fail(name, f"killed by {_signal_name(-code)}, {MAX_STUCK + 1} times without progress")
        else:
            self._fail(name, self._reason(name, code))

    def _may_continue(self, name: str) -> bool:
        """Whether a killed run is started again: not if it was killed several times without saving in between."""
        saved = self.folder.newest_step(name) > self.kept_step[name]
        self.stuck[name] = 0 if saved else self.stuck[name] + 1
        return self.stuck[name] <= MAX_STUCK

    def _fail(self, name: str, reason: str) -> None:
        self.outcome.failed[name] = reason
        if any(text in reason for text in FULL):
            self.outcome.full_disk = True
        self.display.failed(name, reason)

    def _reason(self, name: str, code: int) -> str:
        """Why a run failed; on a full disk its last line may be lost too."""
        reason = self.folder.last_line(name) or f"exit code {code}"
        if shutil.disk_usage(self.folder.path).free < FULL_DISK_BYTES and not any(text in reason for text in FULL):
            reason = f"{self.folder.run_dir(name)}: {FULL[0]}"
        return reason

    def _stop(self, number: int) -> None:
        """Stop every run, wait until they have saved, and raise `Stopped`."""
        signals = active_signals()
        signals.stopping = True
        where = self.folder.path
        if self.launcher.detaches:
            raise Stopped.by(number, f"; {len(self.running)} runs continue without it; the same command shows {where}")
        self.launcher.stop(number)
        while self.running:
            for name, _ in self.launcher.poll():
                self.running.discard(name)
                if self.folder.state(name).status == "finished":
                    self.outcome.finished.append(name)
            self.display.update(self.running, len(self.waiting))
            time.sleep(POLL_SECONDS)
        raise Stopped.by(number, f"; every run is saved, the same command continues {where}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
