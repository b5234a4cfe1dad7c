"""One worker process as the parent uses it: pipes, replies, exit."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

from rl_training.envs.host.frames import JSON, StepBuffers, json_frame, read_frame, write_all
from rl_training.envs.host.stepping import RowsFailed

# Not `-m`: that would put the current directory before the paths this process imports from.
PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; from rl_training.envs.host.worker import main; main()"
)
SECONDS_TO_CLOSE = 2.0  # of training's workers, and then evaluation's: a stopped program ends within five
SECONDS_AFTER_A_CUT = 1.0  # for a step that was interrupted


class RemoteTraceback(Exception):
    """The traceback of an environment in a worker process."""

    def __str__(self) -> str:
        return f"in a worker process\n\n{self.args[0]}"


class WorkerProcess:
    """One process, its two pipes, and its rows [start, stop)."""

    def __init__(self, start: int, stop: int, timeout: float, buffers: StepBuffers) -> None:
        self.start, self.stop, self.block, self.timeout = start, stop, slice(start, stop), timeout
        self.buffers = buffers
        # A new session: Ctrl-C in the terminal reaches only the parent, even before the worker ignores signals.
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *map(str, sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                pass_fds=[buffers.file],
            )
        finally:
            os.close(buffers.file)  # the worker has its own, and the memory stays
        assert self.process.stdin is not None and self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.write_fd, self.read_fd = self.stdin.fileno(), self.stdout.fileno()
        self.poll = select.poll()
        self.poll.register(self.read_fd, select.POLLIN)

    def send(self, data: bytes | bytearray) -> None:
        """Send a frame."""
        try:
            write_all(self.write_fd, data)
        except BrokenPipeError as error:
            raise self._lost() from error

    def receive_json(self) -> dict[str, object]:
        """Wait for a JSON reply."""
        self._await_reply()
        try:
            answer: dict[str, object] = json.loads(read_frame(self.read_fd)[1])
        except EOFError as error:
            raise self._lost() from error
        return answer

    def receive_result(self) -> None:
        """Wait until the results are in the buffers."""
        self._await_reply()
        try:
            kind, payload = read_frame(self.read_fd)
        except EOFError as error:
            raise self._lost() from error
        if kind == JSON:
            answer = json.loads(payload)
            failed = RowsFailed([self.start + answer["row"]], answer["what"], answer["steps"])
            raise failed from RemoteTraceback(answer["trace"])

    def _await_reply(self) -> None:
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

    def close_pipes(self, send_close: bool) -> None:
        """Close both pipes, which ends the worker; `send_close` ends it even where a forked process holds the pipe."""
        if send_close and self.process.poll() is None:
            with suppress(OSError):
                write_all(self.write_fd, json_frame({"do": "close"}))
        self.stdin.close()
        self.stdout.close()

    def wait_or_kill(self, seconds: float) -> None:
        """Wait for the process to end, and kill it after `seconds`."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
