"""One worker process seen from the parent: its pipes, its answers, its death."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

from rl_training.envs.host.worker import (
    HEADER,
    JSON,
    Layout,
    RowsFailed,
    json_frame,
    read_exactly,
    read_frame,
    write_all,
)

# Not `-m`: that would put the current directory before the paths this process imports from.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; from rl_training.envs.host.worker import main; main()"
)
SECONDS_TO_CLOSE = 3.0  # a stopped program has five in all
SECONDS_AFTER_A_CUT = 1.0  # for a step that nobody waits for any more


class RemoteTraceback(Exception):
    """Where an environment raised, in a worker process."""

    def __str__(self) -> str:
        return f"in a worker process\n\n{self.args[0]}"


class WorkerProcess:
    """One process, its two pipes, and the rows [start, stop) it holds."""

    layout: Layout

    def __init__(self, start: int, stop: int, timeout: float) -> None:
        self.start, self.stop, self.block, self.timeout = start, stop, slice(start, stop), timeout
        # A session of its own: Ctrl-C in the terminal reaches the parent alone, even before the worker ignores it.
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *map(str, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.write_fd, self.read_fd = self.stdin.fileno(), self.stdout.fileno()
        self.poll = select.poll()
        self.poll.register(self.read_fd, select.POLLIN)

    def send(self, data: bytes | bytearray) -> None:
        try:
            write_all(self.write_fd, data)
        except BrokenPipeError as error:
            raise self._lost() from error

    def receive_json(self) -> dict[str, object]:
        self._await_answer()
        try:
            answer: dict[str, object] = json.loads(read_frame(self.read_fd)[1])
        except EOFError as error:
            raise self._lost() from error
        return answer

    def receive_result(self) -> None:
        """Fill the layout's arrays. The pipe holds one answer at most, so one read may take header and payload."""
        reply = memoryview(self.layout.reply)
        got = 0
        while got < len(reply):
            self._await_answer()
            count = os.readv(self.read_fd, [reply[got:]])
            if count == 0:
                raise self._lost()
            got += count
            if got >= HEADER.size:
                kind, size = HEADER.unpack_from(reply)
                if kind == JSON:
                    raise self._failure(bytes(reply[HEADER.size : got]), size)

    def _failure(self, beginning: bytes, size: int) -> RowsFailed:
        payload = bytearray(size)
        payload[: len(beginning)] = beginning
        try:
            read_exactly(self.read_fd, memoryview(payload)[len(beginning) :])
        except EOFError:
            return self._lost()
        answer = json.loads(payload)
        failed = RowsFailed([self.start + answer["row"]], answer["what"], answer["steps"])
        failed.__cause__ = RemoteTraceback(answer["trace"])
        return failed

    def _await_answer(self) -> None:
        deadline = time.monotonic() + self.timeout
        while not self.poll.poll(min(self.timeout, 1.0) * 1000):
            # A child of the environment may hold the pipe open after the worker itself has died.
            if self.process.poll() is not None and not self.poll.poll(0):
                raise self._lost()
            if time.monotonic() > deadline:
                self.process.kill()
                self.process.wait()
                what = f"its worker process gave no answer for {self.timeout:g} s and was ended"
                raise RowsFailed(range(self.start, self.stop), what, exit_code=self.process.returncode)

    def _lost(self) -> RowsFailed:
        self.wait_or_kill(SECONDS_TO_CLOSE)
        code = self.process.returncode
        if code < 0:
            how = f"was killed by signal {-code} ({signal.Signals(-code).name})"
            how += ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
        else:
            how = f"ended with exit code {code}"
        return RowsFailed(range(self.start, self.stop), f"its worker process {how}", exit_code=code)

    def hang_up(self, politely: bool) -> None:
        """Ask the worker to end; the end of its input tells it too, unless a forked process still holds the pipe."""
        if politely and self.process.poll() is None:
            with suppress(OSError):
                write_all(self.write_fd, json_frame({"do": "close"}))
        self.stdin.close()
        self.stdout.close()

    def wait_or_kill(self, seconds: float) -> None:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
