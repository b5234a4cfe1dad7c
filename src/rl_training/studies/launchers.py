"""Launchers start the runs of a study somewhere: as processes of this machine, as tasks of Ray, as jobs of Slurm."""

from __future__ import annotations

import subprocess
from typing import Protocol

from rl_training.studies.folder import StudyFolder
from rl_training.studies.process import RunInUse, in_use, start_planned
from rl_training.studies.slots import Slots

NAMES = ("local", "ray", "slurm")
LOST = -9  # the exit code of a run whose process has vanished


class Launcher(Protocol):
    """Where the runs of a study are executed."""

    detaches: bool  # whether its runs continue without the sweep, and a signal to the sweep leaves them alone

    def describe(self) -> str:
        """How many runs at a time, in one line."""
        ...

    def free(self) -> int:
        """The number of runs that can be started now."""
        ...

    def start(self, name: str) -> None:
        """Start or resume a run."""
        ...

    def poll(self) -> list[tuple[str, int]]:
        """The runs that have ended since the last call, with their exit codes; negative: killed."""
        ...

    def stop(self, number: int, name: str | None = None) -> None:
        """Send a signal to every run, or to one, so that it saves and ends."""
        ...

    def close(self) -> None:
        """Release what the launcher holds."""
        ...


class LocalLauncher:
    """Runs as processes of this machine."""

    detaches = False

    def __init__(self, folder: StudyFolder, slots: Slots) -> None:
        self.folder, self.slots = folder, slots
        self._running: dict[str, subprocess.Popen[bytes] | None] = {}  # None: another process, watched by its lock
        self._slot: dict[str, int] = {}
        self._ended: list[tuple[str, int]] = []

    def describe(self) -> str:
        return self.slots.describe()

    def free(self) -> int:
        return self.slots.count - len(self._running)

    def start(self, name: str) -> None:
        slot = min(set(range(self.slots.count + len(self._slot))) - set(self._slot.values()))
        try:
            process = start_planned(self.folder, name, self.slots.environment(slot))
            if process is None:  # another process has finished it meanwhile
                self._ended.append((name, 0))
                return
            self._running[name] = process
        except RunInUse:
            self._running[name] = None
        self._slot[name] = slot

    def poll(self) -> list[tuple[str, int]]:
        ended, self._ended = self._ended, []
        for name, process in list(self._running.items()):
            code = process.poll() if process is not None else None
            if process is None and not in_use(self.folder, name):
                code = LOST  # or finished: its files tell
            if code is not None:
                ended.append((name, code))
                del self._running[name], self._slot[name]
        return ended

    def stop(self, number: int, name: str | None = None) -> None:
        for one, process in self._running.items():
            if process is not None and name in (None, one) and process.poll() is None:
                process.send_signal(number)

    def close(self) -> None:
        """Wait for processes that are still there after an error of the sweep itself."""
        for process in self._running.values():
            if process is not None and process.poll() is None:
                process.terminate()
                process.wait()
