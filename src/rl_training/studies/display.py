"""The display of a study: all runs on one live screen, plain lines when piped."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from rl_training.run.progress import format_clock, format_value, is_terminal
from rl_training.studies.folder import RunState, StudyFolder

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LIVE_SECONDS = 0.5
PLAIN_SECONDS = 30.0


class StudyDisplay:
    """Shows which runs of a study start, advance, finish and fail."""

    def __init__(
        self,
        folder: StudyFolder,
        labels: Mapping[str, str],
        totals: Mapping[str, int],
        *,
        stream: TextIO | None = None,
        enabled: bool = True,
    ) -> None:
        self.folder, self.labels, self.totals = folder, dict(labels), dict(totals)
        self._stream, self._enabled = sys.stderr if stream is None else stream, enabled
        self._steps = {name: folder.state(name).step for name in labels}
        self._first = sum(self._steps.values())
        self._started, self._next = time.monotonic(), 0.0
        self._ended = sum(folder.state(name).ended for name in labels)
        self._live: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        if enabled and is_terminal(self._stream):
            self._open_live()

    def add(self, name: str, label: str, total: int) -> None:
        """A run that was not known at the start: a trial of `tune`."""
        self.labels[name], self.totals[name], self._steps[name] = label, total, self.folder.state(name).step

    def started(self, name: str, state: RunState) -> None:
        at = f" at step {state.step:,}" if state.step else ""
        self._line(f"{'resumed' if state.status == 'stopped' else 'started'}  {self.labels[name]}{at}")

    def finished(self, name: str, state: RunState) -> None:
        self._steps[name] = self.totals[name]
        self._ended += 1
        value = (state.metrics or {}).get("eval_return_mean")
        shown = f", return {format_value(value)}" if isinstance(value, float) else ""
        self._line(f"finished {self.labels[name]}{shown}{f' (inexact: {state.note})' if state.note else ''}")

    def failed(self, name: str, reason: str) -> None:
        self._ended += 1
        self._line(f"failed   {self.labels[name]}: {reason}")

    def killed(self, name: str, code: int) -> None:
        self._line(f"killed   {self.labels[name]} (signal {-code}); it is resumed")

    def note(self, text: str) -> None:
        """Print a line above the live screen."""
        self._line(text)

    def update(self, running: Collection[str], waiting: int) -> None:
        """Redraw, if it is time: the steps of the runs in progress, and the time left."""
        now = time.monotonic()
        if not self._enabled or now < self._next:
            return
        self._next = now + (LIVE_SECONDS if self._live is not None else PLAIN_SECONDS)
        for name in running:
            self._steps[name] = max(self._steps[name], self.folder.shown_step(name))
        status = f"{self._ended}/{len(self.labels)} runs, {len(running)} running, {waiting} waiting{self._left(now)}"
        if self._live is None:
            self._line(f"{status}; {', '.join(map(self._progress, running))}" if running else status)
        else:
            self._draw(running, status)

    def close(self) -> None:
        """Free the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        self._enabled = False

    def _left(self, now: float) -> str:
        """The time left at the speed of this session, once it is known."""
        done, total = sum(self._steps.values()), sum(self.totals.values())
        rate = (done - self._first) / max(now - self._started, 1e-9)
        return f", {format_clock((total - done) / rate)} left" if rate > 0 and done < total else ""

    def _progress(self, name: str) -> str:
        return f"{self.labels[name]} {100 * self._steps[name] // max(self.totals[name], 1)}%"

    def _line(self, text: str) -> None:
        if not self._enabled:
            return
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        try:
            print(text, file=self._stream, flush=True)
        except BrokenPipeError:
            self._enabled = False  # the reader has closed the pipe; the study continues

    # --- on a terminal -----------------------------------------------------------------------------------------------
    def _open_live(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns: list[Any] = [
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:>3.0f}%"),
        ]
        self._live = Progress(*columns, console=Console(file=self._stream), auto_refresh=False)
        self._tasks[""] = self._live.add_task("", total=1)
        self._live.start()

    def _draw(self, running: Collection[str], status: str) -> None:
        assert self._live is not None
        for name in [one for one in self._tasks if one and one not in running]:
            self._live.remove_task(self._tasks.pop(name))
        for name in sorted(running):
            if name not in self._tasks:
                self._tasks[name] = self._live.add_task(self.labels[name], total=max(self.totals[name], 1))
            self._live.update(self._tasks[name], completed=self._steps[name])
        done, total = sum(self._steps.values()), max(sum(self.totals.values()), 1)
        self._live.update(self._tasks[""], description=status, completed=done, total=total)
        self._live.refresh()
