"""SIGINT and SIGTERM in one process: raised, deferred, ignored, repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest

from rl_training.core import signals
from rl_training.core.signals import (
    Interrupted,
    Stopped,
    StopSignals,
    Terminated,
    deferred,
    interruptible,
    stop_signals,
)

pytestmark = pytest.mark.usefixtures("ctrl_c", "sigterm")


@pytest.fixture
def sigterm() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)


@pytest.mark.parametrize(
    ("number", "kind", "name"), [(2, KeyboardInterrupt, "SIGINT"), (15, SystemExit, "SIGTERM")], ids=["int", "term"]
)
def test_a_signal_raises_what_no_except_exception_catches(number: int, kind: type, name: str) -> None:
    handler = signal.getsignal(number)
    with pytest.raises(Stopped) as caught, stop_signals():
        try:
            send(number)
        except Exception:
            pytest.fail("swallowed")
    assert isinstance(caught.value, kind) and not isinstance(caught.value, Exception)
    assert (caught.value.number, caught.value.result, str(caught.value)) == (number, None, f"stopped by {name}")
    assert signal.getsignal(number) is handler


def test_an_uncaught_sigterm_exits_with_143() -> None:
    assert Terminated(15).code == 143 and str(Terminated(15, "; saved")) == "stopped by SIGTERM; saved"
    assert isinstance(Stopped.by(2), Interrupted)


def test_a_deferred_signal_is_kept_until_someone_looks() -> None:
    with stop_signals() as found, deferred():
        send(signal.SIGINT)
        assert found.received == signal.SIGINT
        with pytest.raises(Interrupted), interruptible():
            pytest.fail("it was asked to stop before this began")


def test_a_failure_behind_a_signal_is_the_signals() -> None:
    """A compiler that Ctrl-C ended too is no error of the program."""
    with stop_signals(), deferred():
        with pytest.raises(Interrupted) as caught, interruptible():
            try:
                send(signal.SIGINT)
            except Interrupted:
                raise RuntimeError("g++ was killed") from None
        assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError), stop_signals(), interruptible():
        raise RuntimeError("of its own")


def test_sigint_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pytest.raises(Terminated), stop_signals() as found:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        send(signal.SIGINT)
        assert found.received is None
        send(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_exception_that_was_swallowed_comes_again(monkeypatch) -> None:
    monkeypatch.setattr(signals, "RAISE_AGAIN", 0.1)
    seen = []
    with pytest.raises(Interrupted), stop_signals():
        try:
            send(signal.SIGINT)
        except BaseException as error:  # as in a destructor
            seen.append(error)
        time.sleep(20)
    assert len(seen) == 1


def test_the_second_signal_in_python_ends_the_run_and_not_the_interpreter() -> None:
    with pytest.raises(Interrupted), stop_signals(), deferred():
        send(signal.SIGINT)
        time.sleep(0.3)
        send(signal.SIGINT)
        time.sleep(20)


def test_a_thread_has_no_handlers_and_a_nested_use_has_the_same() -> None:
    found: list[StopSignals] = []

    def work() -> None:
        with stop_signals() as own, interruptible():
            found.append(own)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found[0].received is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with stop_signals() as outer, stop_signals() as inner:
        assert outer is inner


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "as it is forked"])
def test_a_forked_child_dies_of_its_own_signals(at_once: bool, monkeypatch) -> None:
    """An environment may fork: what ends its children must not stop the run."""
    parent, forget = os.getpid(), signal.set_wakeup_fd

    def killed(*arguments, **keywords):
        if at_once and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
        return forget(*arguments, **keywords)

    monkeypatch.setattr(signal, "set_wakeup_fd", killed)
    with stop_signals() as found:
        child = os.fork()
        if child == 0:
            time.sleep(20)
            os._exit(0)
        if not at_once:
            os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        time.sleep(0.05)
        assert found.received is None


PROGRAM = """
    import hashlib, os, signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from rl_training.core.signals import Stopped, deferred, stop_signals
    with stop_signals(program=True) as signals:
        print("ready", flush=True)
        {body}
"""
IN_C = "hashlib.pbkdf2_hmac('sha256', b'', b'', 200_000_000)"
BODIES = {
    "raising": (IN_C, 1),
    "deferred": (f"with deferred(): {IN_C}", 2),
}


@pytest.mark.parametrize("body", BODIES)
def test_a_call_that_does_not_return_is_acknowledged_and_ended(body: str) -> None:
    """In a call into C no handler runs. What is deferred is left to finish, and ended by a second signal."""
    code, signals_needed = BODIES[body]
    program = textwrap.dedent(PROGRAM).format(body=code)
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program], stdout=pipe, stderr=pipe, text=True)
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    line = process.stderr.readline()
    assert line == "SIGTERM: stopping; a second signal ends the program at once, without saving\n"
    assert time.monotonic() - began < 2
    if signals_needed == 2:
        process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 143
    assert time.monotonic() - began < 5
