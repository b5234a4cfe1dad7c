"""What a user watches while training: a live bar on a terminal, plain lines when piped."""

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
    from rich.console import Console, RenderableType
    from rich.live import Live

REDRAW_SECONDS = 0.1
PLAIN_LINE_SECONDS = 5.0
RATE_WINDOW_SECONDS = 15.0


class Progress:
    """Shows steps from `start` to `total`; `start` is where a resumed run picked up, so steps/s counts new steps only.

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
        self._console: Console | None = None
        self._live: Live | None = None
        self._begun = time.monotonic()
        self._recent = deque([(self._begun, start)])
        self._compiling = False
        self._compile_seconds = 0.0
        live = enabled and _is_terminal(self._stream)
        self._interval = REDRAW_SECONDS if live else PLAIN_LINE_SECONDS
        self._next_draw = self._begun + self._interval
        # Steps below this one are not worth a clock read.
        self._next_look = start if enabled else sys.maxsize
        if live:
            self._open_live()

    def update(self, step: int, values: Mapping[str, float | None]) -> None:
        """Say where training is; values given earlier and absent now stay on display."""
        self._step = step
        if values:
            self._values.update(values)
        if step < self._next_look:
            return
        now = time.monotonic()
        if now < self._next_draw:
            return
        self._draw(now)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """To be entered while kernels are compiled: no step is taken, so the speed of before says nothing."""
        begun, self._compiling = time.monotonic(), True
        if self._enabled and (self._live is not None or not self._compile_seconds):  # one plain line for all of them
            self._draw(begun)
        try:
            yield
        finally:
            now, self._compiling = time.monotonic(), False
            self._compile_seconds += now - begun
            self._recent = deque([(now, self._step)])  # the steps before were taken without learning
            if self._enabled:
                self._next_look, self._next_draw = self._step, now + self._interval

    def note(self, message: str) -> None:
        """Print a line above the bar."""
        if not self._enabled:  # quiet means no bar; what the user should know is still said
            print(message, file=sys.stderr)
            return
        if self._console is not None:
            self._console.print(message, markup=False, highlight=False, soft_wrap=True)
        else:
            self._write(message)

    def close(self) -> None:
        """Show the last state, with the average speed of this session, and give the terminal back.

        Compiling is no part of that speed.
        """
        if not self._enabled:
            return
        self._recent = deque([(self._begun + self._compile_seconds, self._start)])
        self._draw(time.monotonic())
        if self._live is not None:
            self._live.stop()
        self._enabled = False
        self._next_look = sys.maxsize

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _draw(self, now: float) -> None:
        rate = self._update_rate(now)
        # Skip only a fraction of a redraw's steps: training may slow down a lot once the first updates start.
        self._next_look = self._step + int(rate * REDRAW_SECONDS / 10)
        self._next_draw = now + self._interval
        if self._live is not None:
            self._live.update(self._renderable(rate), refresh=True)
        else:
            self._write(
                "  ".join([self._label, f"{self._step:,}/{self._total:,}", *self._facts(rate), *self._latest()])
            )

    def _update_rate(self, now: float) -> float:
        self._recent.append((now, self._step))
        while len(self._recent) > 2 and self._recent[0][0] < now - RATE_WINDOW_SECONDS:
            self._recent.popleft()
        then, step_then = self._recent[0]
        return max(0, self._step - step_then) / max(now - then, 1e-9)

    def _facts(self, rate: float) -> list[str]:
        percent = 100 * self._step // self._total if self._total > 0 else 100
        if self._compiling:
            return [f"{percent}%", "compiling"]
        facts = [f"{percent}%", f"{format_rate(rate)} steps/s"]
        remaining = self._total - self._step
        if remaining > 0 and rate > 0:
            facts.append(f"{format_clock(remaining / rate)} left")
        elif remaining <= 0:
            facts.append(f"{format_clock(time.monotonic() - self._begun)} taken")
        return facts

    def _latest(self) -> list[str]:
        shown = ((key, value) for key, value in self._values.items() if value is not None)
        return [f"{_short_name(key)} {format_value(value)}" for key, value in shown]

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except BrokenPipeError:
            self._enabled = False  # whoever was watching left; training goes on
            self._next_look = sys.maxsize

    def _open_live(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=self._stream)
        self._live = Live(
            self._renderable(0.0),
            console=self._console,
            auto_refresh=False,
            # rich would send redirected output (`train > log`) to the terminal instead of the file.
            redirect_stdout=_is_terminal(sys.stdout),
            redirect_stderr=_is_terminal(sys.stderr),
        )
        self._live.start(refresh=True)

    def _renderable(self, rate: float) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        bar = ProgressBar(total=max(self._total, 1), completed=min(self._step, self._total), width=None)
        row = Table.grid(padding=(0, 2, 0, 0), expand=True)
        row.add_column(no_wrap=True)
        row.add_column(ratio=1, min_width=10)
        row.add_column(no_wrap=True)
        steps = Text(f"{self._step:,}/{self._total:,}  " + "  ".join(self._facts(rate)))
        row.add_row(Text(self._label, style="bold"), bar, steps)
        latest = Text("  ".join(self._latest()), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(row, latest)


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


def _is_terminal(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
