"""The progress display of training: a live bar on a terminal, plain lines when piped."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rl_training.run.live_bar import LiveBar

REDRAW_SECONDS = 0.1
PLAIN_LINE_SECONDS = 5.0
RATE_WINDOW_SECONDS = 15.0


class Progress:
    """Shows steps from `start` to `total`; `start` is the step of a resumed run, so steps/s counts new steps only.

    Use it as a context manager, or call `close`: a live bar hides the cursor until then.
    """

    def __init__(
        self, total: int, label: str, start: int = 0, *, stream: TextIO | None = None, enabled: bool = True
    ) -> None:
        self._total = total
        self._label = label
        self._start = self._step = start
        self._stream = sys.stderr if stream is None else stream
        self._enabled = enabled
        self._values: dict[str, float | None] = {}
        self._bar: LiveBar | None = None
        self._started = time.monotonic()
        self._samples = deque([(self._started, start)])  # (time, step) within the window of the speed
        self._compiling = False
        self._compile_seconds = 0.0
        live = enabled and is_terminal(self._stream)
        self._interval = REDRAW_SECONDS if live else PLAIN_LINE_SECONDS
        self._next_draw = self._started + self._interval
        # Earlier steps do not read the clock.
        self._next_clock_step = start if enabled else sys.maxsize
        if live:
            from rl_training.run.live_bar import LiveBar

            self._bar = LiveBar(label, total, self._stream)
            self._show(0.0)

    def update(self, step: int, values: Mapping[str, float | None]) -> None:
        """Report the current step and the newest values; earlier values stay on display."""
        self._step = step
        if values:
            self._values.update(values)
        if step < self._next_clock_step:
            return
        now = time.monotonic()
        if now < self._next_draw:
            return
        self._draw(now)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Enter this while kernels are compiled: no step is taken, so there is no speed and no estimate."""
        started, self._compiling = time.monotonic(), True
        if self._enabled and (self._bar is not None or not self._compile_seconds):  # one plain line for all of them
            self._draw(started)
        try:
            yield
        finally:
            now, self._compiling = time.monotonic(), False
            self._compile_seconds += now - started
            self._samples = deque([(now, self._step)])  # the steps before were taken without learning
            if self._enabled:
                self._next_clock_step, self._next_draw = self._step, now + self._interval

    def note(self, message: str) -> None:
        """Print a line above the bar; without a display, print it to stderr."""
        if not self._enabled:
            print(message, file=sys.stderr)
        elif self._bar is not None:
            self._bar.note(message)
        else:
            self._write(message)

    def close(self) -> None:
        """Show the last state, with the average speed of this session without compiling, and free the terminal."""
        if not self._enabled:
            return
        self._samples = deque([(self._started + self._compile_seconds, self._start)])
        self._draw(time.monotonic())
        if self._bar is not None:
            self._bar.stop()
        self._disable()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _disable(self) -> None:
        self._enabled = False
        self._next_clock_step = sys.maxsize

    def _draw(self, now: float) -> None:
        rate = self._update_rate(now)
        # Skip only a fraction of a redraw's steps: training may slow down a lot once the first updates start.
        self._next_clock_step = self._step + int(rate * REDRAW_SECONDS / 10)
        self._next_draw = now + self._interval
        self._show(rate)

    def _show(self, rate: float) -> None:
        status, latest = "  ".join(self._status(rate)), "  ".join(self._latest())
        if self._bar is not None:
            self._bar.show(min(self._step, self._total), status, latest)
        else:
            self._write("  ".join(filter(None, (self._label, status, latest))))

    def _update_rate(self, now: float) -> float:
        self._samples.append((now, self._step))
        while len(self._samples) > 2 and self._samples[0][0] < now - RATE_WINDOW_SECONDS:
            self._samples.popleft()
        then, step_then = self._samples[0]
        return max(0, self._step - step_then) / max(now - then, 1e-9)

    def _status(self, rate: float) -> list[str]:
        """The step, the percentage, the speed, and the time left or taken."""
        percent = 100 * self._step // self._total if self._total > 0 else 100
        status = [f"{self._step:,}/{self._total:,}", f"{percent}%"]
        if self._compiling:
            return [*status, "compiling"]
        status.append(f"{format_rate(rate)} steps/s")
        remaining = self._total - self._step
        if remaining > 0 and rate > 0:
            status.append(f"{format_clock(remaining / rate)} left")
        elif remaining <= 0:
            status.append(f"{format_clock(time.monotonic() - self._started)} taken")
        return status

    def _latest(self) -> list[str]:
        shown = ((key, value) for key, value in self._values.items() if value is not None)
        return [f"{_short_name(key)} {format_value(value)}" for key, value in shown]

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except BrokenPipeError:
            self._disable()  # the reader has closed the pipe; training continues


def format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def format_clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def format_value(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == 0 or 0.01 <= abs(value) < 1e6:
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:.2e}"


def _short_name(key: str) -> str:
    return key.rsplit("/", 1)[-1].replace("_", " ")


def is_terminal(stream: TextIO) -> bool:
    """Whether a live bar can be drawn there."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
