"""SIGINT and SIGTERM: reported at once, handled where a run can be saved. A second signal ends the program.

A handler runs in the main thread and between two bytecodes only. So a second thread receives every signal through a
pipe, reports it, and ends a program whose main thread does not return from a long call into C.
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
REPORT_AFTER = 0.5  # seconds; a program that stops sooner has reported it itself
SAME_SIGNAL = 0.2  # seconds; `timeout` signals the program and its group, so one signal arrives twice
RAISE_AGAIN = 1.5  # seconds; an exception in a destructor is lost
GIVE_UP_AFTER = 4.0  # seconds without a reaction of the main thread
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Stopped(BaseException):
    """A signal stopped a run or a command. `result` is the result that was saved, None where nothing was.

    No `except Exception` catches it: it is a KeyboardInterrupt after SIGINT, a SystemExit after SIGTERM.
    """

    def __init__(self, number: int, saved: str = "", result: TrainResult | None = None) -> None:
        super().__init__()
        self.number = number
        self.describe(saved, result)

    @staticmethod
    def by(number: int, saved: str = "", result: TrainResult | None = None) -> Stopped:
        """The exception for signal `number`."""
        return (Interrupted if number == signal.SIGINT else Terminated)(number, saved, result)

    def describe(self, saved: str, result: TrainResult | None = None) -> None:
        """Set the message and the result: what was saved, and where."""
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
    """The state of SIGINT and SIGTERM in this process. `stop_signals` makes it active."""

    def __init__(self, program: bool = False) -> None:
        self.program = program  # whether the whole process may be ended
        self.received: int | None = None
        self.raises = True  # `Stopped` at once; else the code that reads `received` stops
        self.stopping = False  # the program is stopping, and may take its time to save
        self.notice = "stopping; a second signal ends the program at once, without saving"  # if that takes long
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
        """Raise `Stopped` if a signal was received."""
        if self.received is not None:
            raise Stopped.by(self.received)

    def report(self, text: str) -> None:
        """Print a line about the signal; no other line about its receipt follows."""
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
            # Ignored by the parent process (nohup, a shell's background job) or handled by C code: left as it is.
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
                    next_raise = self._escalate(number, first, next_raise)
                    continue
                for byte in pipe.read(512) or b"\0":
                    if byte == 0:
                        return
                    if byte not in self._previous:
                        self._forward(byte)
                    elif self._raised_by_us:
                        self._raised_by_us -= 1
                    elif not number:
                        number, first = byte, time.monotonic()
                        next_raise = first + RAISE_AGAIN
                    elif time.monotonic() - first > SAME_SIGNAL:
                        self._handle_second(byte)

    def _escalate(self, number: int, first: float, next_raise: float) -> float:
        """Report, raise again or give up, by the time since the first signal; returns when to raise next."""
        now = time.monotonic()
        if now - first > REPORT_AFTER and not self._reported:
            self.report(f"{signal.Signals(number).name}: {self.notice}")
        if self.stopping or not self.raises:
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

    def _handle_second(self, number: int) -> None:
        if self.program:
            os._exit(128 + number)
        self.raises = True  # an interpreter with other users: only the run ends
        self._raise_in_main(number)

    def _raise_in_main(self, number: int) -> None:
        if self._main.ident is not None:
            self._raise_again = True
            self._raised_by_us += 1
            signal.pthread_kill(self._main.ident, number)

    def _forward(self, byte: int) -> None:
        if self._previous_fd != -1:  # another handler's pipe, such as that of an event loop
            with contextlib.suppress(OSError):
                os.write(self._previous_fd, bytes([byte]))


_active: StopSignals | None = None


@contextmanager
def stop_signals(program: bool = False) -> Iterator[StopSignals]:
    """Context in which SIGINT and SIGTERM raise `Stopped`, or are deferred inside `deferred`."""
    global _active
    if _active is not None or threading.current_thread() is not threading.main_thread():
        yield active_signals()  # Python allows handlers in the main thread alone
        return
    _active = signals = StopSignals(program)
    signals.install()
    try:
        yield signals
    except Terminated as stop:
        signals.report(str(stop))  # a SystemExit ends a program silently
        raise
    finally:
        signals.uninstall()
        _active = None


def active_signals() -> StopSignals:
    """The active signals of this process; where there are none, as in a thread, an instance that receives nothing."""
    return _active or StopSignals()


class _Section:
    """A context that raises or defers signals. Not a generator: a signal may leave one half-way."""

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
    """Context in which signals raise at once: for long work that leaves no half-changed state to be saved."""
    return _Section(raises=True)


def deferred() -> _Section:
    """Context in which signals are only stored in `received`: for work that has to be finished or saved."""
    return _Section(raises=False)


_before_fork = threading.local()  # the thread's signal mask


def _block_signals() -> None:
    """Before a fork: a signal to a child that still has our handlers would be written into our pipe."""
    _before_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _before_fork.mask)


def _reset_in_child() -> None:
    """After a fork: the child must neither handle our signals nor write into our pipe."""
    global _active
    if _active is not None:
        signal.set_wakeup_fd(-1)
        for number, handler in _active._previous.items():
            signal.signal(number, handler)
        _active = None
    _unblock_signals()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_reset_in_child)
