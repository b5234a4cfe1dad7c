"""SIGINT and SIGTERM: reported at once, obeyed where nothing is lost by it. A second signal ends the program.

A handler runs in the main thread and between two bytecodes only. So a second thread hears of every signal through a
pipe, prints the line that says so, and ends a program whose main thread does not come back from a long call into C.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

from rl_training.core.results import TrainResult

NUMBERS = (signal.SIGINT, signal.SIGTERM)
REPORT_AFTER = 0.5  # seconds; a program that stops sooner has said so itself
SAME_SIGNAL = 0.2  # seconds; `timeout` sends its signal to the program and to its group, so it comes twice
RAISE_AGAIN = 1.5  # seconds; an exception in a destructor is lost
GIVE_UP_AFTER = 4.0  # seconds in which the main thread did not react
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Stopped(BaseException):
    """A signal stopped a run or a command. `result` is what the run has saved, None where it has saved nothing.

    Nobody's `except Exception` catches it: it is a KeyboardInterrupt after SIGINT, a SystemExit after SIGTERM.
    """

    def __init__(self, number: int, saved: str = "", result: TrainResult | None = None) -> None:
        super().__init__()
        self.number = number
        self.describe(saved, result)

    @staticmethod
    def by(number: int, saved: str = "", result: TrainResult | None = None) -> Stopped:
        return (Interrupted if number == signal.SIGINT else Terminated)(number, saved, result)

    def describe(self, saved: str, result: TrainResult | None = None) -> None:
        """Say what was saved, and where."""
        self.result = result
        self.args = (f"stopped by {signal.Signals(self.number).name}{saved}",)

    def __str__(self) -> str:
        return str(self.args[0])


class Interrupted(Stopped, KeyboardInterrupt):
    """Stopped by SIGINT (Ctrl-C)."""


class Terminated(Stopped, SystemExit):
    """Stopped by SIGTERM: a program that does not catch it exits with 143."""

    def __init__(self, number: int, saved: str = "", result: TrainResult | None = None) -> None:
        super().__init__(number, saved, result)
        self.code = 128 + number


class StopSignals:
    """What is known of the signals that ask this process to stop. `stop_signals` makes it active."""

    def __init__(self, program: bool = False) -> None:
        self.program = program  # the whole process is ours to end
        self.received: int | None = None
        self.raises = True  # at once; else whoever looks at `received` stops
        self.obeyed = False  # the program is on its way out, and may take its time to save
        self.on_give_up: Callable[[], None] = lambda: None
        self._reported = False
        self._raise_again = False
        self._raised_by_us = 0
        self._lock = threading.Lock()
        self._previous: dict[int, Any] = {}
        self._previous_fd = -1
        self._write_fd = -1
        self._main = threading.main_thread()

    def check(self) -> None:
        if self.received is not None:
            raise Stopped.by(self.received)

    def report(self, text: str) -> None:
        """The last line about a signal: the first, where there is none yet that it was received."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            self._reported = True
            print(text, file=sys.stderr, flush=True)

    # --- in the main thread ----------------------------------------------------------------------------------------
    def install(self) -> None:
        read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._write_fd, False)
        self._previous_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(read_fd,), daemon=True, name="stop signals").start()
        for number in NUMBERS:
            # Ignored by whoever started us (nohup, a shell's background job) or taken by C code: left as it is.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._previous[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}
        signal.set_wakeup_fd(self._previous_fd)
        with contextlib.suppress(OSError):
            os.write(self._write_fd, b"\0")
            os.close(self._write_fd)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first = self.received is None
        if first:
            self.received = number
        if self.raises and (first or self._raise_again):
            self._raise_again = False
            raise Stopped.by(number)

    # --- in the thread that watches ----------------------------------------------------------------------------------
    def _watch(self, read_fd: int) -> None:
        first = next_raise = 0.0
        number = 0
        with os.fdopen(read_fd, "rb", buffering=0) as pipe:
            while True:
                if not select.select([pipe], [], [], 0.1 if number else None)[0]:
                    next_raise = self._hurry(number, first, next_raise)
                    continue
                for byte in pipe.read(512) or b"\0":
                    if byte == 0:
                        return
                    if byte not in self._previous:
                        self._pass_on(byte)
                    elif self._raised_by_us:
                        self._raised_by_us -= 1
                    elif not number:
                        number, first = byte, time.monotonic()
                        next_raise = first + RAISE_AGAIN
                    elif time.monotonic() - first > SAME_SIGNAL:
                        self._second(byte)

    def _hurry(self, number: int, first: float, next_raise: float) -> float:
        """Whatever is due so long after the first signal; the time at which to raise again."""
        now = time.monotonic()
        if now - first > REPORT_AFTER and not self._reported:
            name = signal.Signals(number).name
            self.report(f"{name}: stopping; a second signal ends the program at once, without saving")
        if self.obeyed or not self.raises:
            return now + RAISE_AGAIN
        if now - first > GIVE_UP_AFTER and self.program:
            with contextlib.suppress(Exception):
                self.on_give_up()
            self.report(f"{Stopped.by(number)}, in the middle of a call that does not return")
            os._exit(128 + number)
        if now > next_raise:
            self._raise_in_main(number)
            return now + RAISE_AGAIN
        return next_raise

    def _second(self, number: int) -> None:
        if self.program:
            os._exit(128 + number)
        self.raises = True  # an interpreter that others use too: only the run ends
        self._raise_in_main(number)

    def _raise_in_main(self, number: int) -> None:
        if self._main.ident is not None:
            self._raise_again = True
            self._raised_by_us += 1
            signal.pthread_kill(self._main.ident, number)

    def _pass_on(self, byte: int) -> None:
        if self._previous_fd != -1:  # someone else's pipe, such as that of an event loop
            with contextlib.suppress(OSError):
                os.write(self._previous_fd, bytes([byte]))


_active: StopSignals | None = None


@contextmanager
def stop_signals(program: bool = False) -> Iterator[StopSignals]:
    """SIGINT and SIGTERM raise `Stopped` in here, or are waited with inside `deferred`."""
    global _active
    if _active is not None or threading.current_thread() is not threading.main_thread():
        yield active_signals()  # Python allows handlers in the main thread alone
        return
    _active = signals = StopSignals(program)
    signals.install()
    try:
        yield signals
    except Terminated as stop:
        signals.report(str(stop))  # a SystemExit ends a program without a word
        raise
    finally:
        signals.uninstall()
        _active = None


def active_signals() -> StopSignals:
    """Those that this process listens to; where it does not, as in a thread, ones that never come."""
    return _active or StopSignals()


class _Section:
    """How signals are taken in a part of the program. Not a generator: those are left half-way by an exception."""

    def __init__(self, raises: bool) -> None:
        mine = threading.current_thread() is threading.main_thread()
        self._signals, self._raises = _active if mine else None, raises
        self._before = True

    def __enter__(self) -> None:
        if self._signals is not None:
            self._before = self._signals.raises
            if self._raises:
                self._signals.check()
            self._signals.raises = self._raises

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._signals is None:
            return
        self._signals.raises = self._before
        # A child process that the same signal ended, such as a compiler, is no failure.
        if self._raises and isinstance(error, Exception) and self._signals.received is not None:
            raise Stopped.by(self._signals.received) from error


def interruptible() -> _Section:
    """Signals raise at once in here: for what takes long and leaves nothing half-changed that will be saved."""
    return _Section(raises=True)


def deferred() -> _Section:
    """Signals are kept in `received` in here, for what has to be finished or saved."""
    return _Section(raises=False)


_forking = threading.local()  # the thread's mask from before


def _hold() -> None:
    """A signal that reaches a child before it has forgotten ours would be written into our pipe."""
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)


def _let_go() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _forget() -> None:
    """A forked process is not the one that was asked to stop, and must not write into our pipe."""
    global _active
    if _active is not None:
        signal.set_wakeup_fd(-1)
        for number, handler in _active._previous.items():
            signal.signal(number, handler)
        _active = None
    _let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold, after_in_parent=_let_go, after_in_child=_forget)
