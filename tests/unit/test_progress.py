"""Piped progress is plain and rare; terminal progress is live and gives the terminal back."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from rl_training.run.progress import Progress, format_clock, format_value


class Clock:
    """Stands in for time.monotonic and counts how often it is read."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("rl_training.run.progress.time.monotonic", clock)
    return clock


def drive(progress: Progress, clock: Clock, first: int, last: int, per_second: int) -> None:
    for step in range(first + 1, last + 1):
        clock.now += 1 / per_second
        progress.update(step, {"return": step / 10, "train/loss": 0.01234, "train/alpha": None})


def test_piped_lines_are_plain_and_about_five_seconds_apart(clock: Clock) -> None:
    stream = io.StringIO()
    with Progress(3000, "dqn CartPole-v1", stream=stream) as progress:
        drive(progress, clock, 0, 3000, per_second=100)
    lines = stream.getvalue().splitlines()
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()
    assert 6 <= len(lines) <= 7  # 30 seconds, and the last line
    assert re.search(
        r"dqn CartPole-v1  5\d\d/3,000  1\d%  100 steps/s  0:2\d left  return 5\d\.\d  loss 0\.0123", lines[0]
    )
    assert "3,000/3,000  100%  100 steps/s  0:30 taken" in lines[-1]
    assert "alpha" not in lines[-1]


def test_a_resumed_run_counts_only_its_own_steps(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(20_000, "sac", start=19_000, stream=stream)
    drive(progress, clock, 19_000, 20_000, per_second=200)
    progress.close()
    *_, last = stream.getvalue().splitlines()
    assert "100%  200 steps/s  0:05 taken" in last


def test_most_updates_read_no_clock(clock: Clock) -> None:
    progress = Progress(1_000_000, "fast", stream=io.StringIO())
    drive(progress, clock, 0, 499_999, per_second=100_000)
    clock.now += 1
    progress.update(500_000, {})  # draws, and learns the speed
    reads = clock.reads
    drive(progress, clock, 500_000, 500_800, per_second=100_000)
    assert clock.reads == reads


def test_values_stay_until_replaced_and_nan_shows(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(10, "run", stream=stream)
    progress.update(1, {"eval": 21.5})
    progress.update(2, {"train/critic_loss": float("nan")})
    progress.close()
    assert "eval 21.5  critic loss nan" in stream.getvalue()


def test_disabled_prints_nothing(clock: Clock) -> None:
    stream = Terminal()
    with Progress(100, "quiet", stream=stream, enabled=False) as progress:
        drive(progress, clock, 0, 100, per_second=1)
        progress.note("hidden")
    assert stream.getvalue() == ""


def test_close_twice_prints_once(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(10, "run", stream=stream)
    progress.close()
    progress.close()
    progress.note("late")
    assert len(stream.getvalue().splitlines()) == 1


def test_a_closed_pipe_does_not_stop_training(clock: Clock) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    progress = Progress(1000, "run", stream=Closed())
    drive(progress, clock, 0, 1000, per_second=10)
    progress.close()


@pytest.mark.parametrize("no_color", [False, True])
def test_terminal_bar(clock: Clock, monkeypatch: pytest.MonkeyPatch, no_color: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    with Progress(1000, "dqn [bold]CartPole[/bold]", stream=stream) as progress:
        drive(progress, clock, 0, 1000, per_second=100)
        progress.note("checkpoint [saved]")
    output = stream.getvalue()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output)
    assert "dqn [bold]CartPole[/bold]" in text  # names are text, never markup
    assert "checkpoint [saved]" in text
    assert "1,000/1,000  100%  100 steps/s" in text
    assert "return 100.0" in text
    assert text.count("steps/s") <= 10 * 10 + 3  # ten seconds, ten redraws in each; first, last, and one for the note
    assert "\x1b[?25h" in output  # the cursor is back
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", output)) is not no_color


def test_dumb_terminal_gets_plain_lines(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    stream = Terminal()
    with Progress(100, "run", stream=stream) as progress:
        drive(progress, clock, 0, 100, per_second=10)
    assert "\x1b" not in stream.getvalue()


@pytest.mark.parametrize("redirected", [True, False])
def test_redirected_output_is_not_captured(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], redirected: bool
) -> None:
    """`train > log` writes to the log, not to the terminal that shows the bar."""
    monkeypatch.setenv("TERM", "xterm-256color")
    log, stream = io.StringIO() if redirected else Terminal(), Terminal()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", log)
        with Progress(10, "run", stream=stream):
            print("an answer")
    assert ("an answer" in log.getvalue()) is redirected
    assert ("an answer" in stream.getvalue()) is not redirected


def test_steps_slower_than_the_window_of_the_speed_have_an_estimate(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(10, "slow", stream=stream)
    for step in range(1, 4):
        clock.now += 60
        progress.update(step, {})
    assert stream.getvalue().splitlines()[-1] == "slow  3/10  30%  0.017 steps/s  7:00 left"


def test_rich_is_not_imported_when_piped() -> None:
    code = (
        "import sys; from rl_training.run.progress import Progress; p = Progress(2, 'x'); p.update(1, {}); "
        "p.close(); assert 'rich' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("x  1/2  50%")


@pytest.mark.parametrize(
    ("formatter", "value", "expected"),
    [
        (format_clock, 59.9, "1:00"),
        (format_clock, 3661, "1:01:01"),
        (format_value, 0.0, "0"),
        (format_value, 1234.56, "1,234.6"),
        (format_value, -3.14159, "-3.14"),
        (format_value, 0.00012, "1.20e-04"),
    ],
)
def test_formats(formatter: Callable[[float], str], value: float, expected: str) -> None:
    assert formatter(value) == expected


def compile_in(progress: Progress, clock: Clock, seconds: float) -> None:
    with progress.compiling():
        clock.now += seconds


def test_no_time_left_is_estimated_while_compiling(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(3000, "sac", stream=stream)
    drive(progress, clock, 0, 600, per_second=100)
    before = len(stream.getvalue().splitlines())
    compile_in(progress, clock, 60)
    compile_in(progress, clock, 60)  # of several programs one line is enough
    compiling = stream.getvalue().splitlines()[before:]
    assert len(compiling) == 1 and "left" not in compiling[0] and "steps/s" not in compiling[0]
    assert compiling[0].startswith("sac  600/3,000  20%  compiling")


def test_compiling_is_not_counted_in_the_speed(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(3000, "sac", stream=stream)
    drive(progress, clock, 0, 600, per_second=1000)  # random steps, before learning starts
    compile_in(progress, clock, 120)
    after = len(stream.getvalue().splitlines())
    drive(progress, clock, 600, 3000, per_second=100)
    progress.close()
    first, *_, last = stream.getvalue().splitlines()[after:]
    assert re.search(r"100 steps/s  0:1\d left", first)
    assert "122 steps/s  2:25 taken" in last  # 3,000 in 24.6 s; the time taken is all of it


def test_the_terminal_shows_compiling_at_once(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with Progress(1000, "dqn", stream=stream) as progress:
        drive(progress, clock, 0, 500, per_second=100)
        shown = len(stream.getvalue())
        with progress.compiling():
            assert "50%  compiling" in stream.getvalue()[shown:]


def test_compiling_is_quiet_where_there_is_no_bar(clock: Clock) -> None:
    stream = io.StringIO()
    progress = Progress(10, "run", stream=stream, enabled=False)
    compile_in(progress, clock, 5)
    drive(progress, clock, 0, 10, per_second=1)
    assert stream.getvalue() == ""
