"""Environments shared out between this process and worker processes: the same rows, the same results, in parallel.

This process steps the first block itself: asleep, it would be woken late and with cold caches. The workers never import
the user's `__main__`, so scripts need no guard; what a worker cannot build stays in this process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise

import numpy as np

from rl_training.envs.factory import EnvSource
from rl_training.envs.worker import (
    ACTIONS,
    HEADER,
    JSON,
    Array,
    Layout,
    LocalStepper,
    RowsFailed,
    describe,
    json_frame,
    read_exactly,
    read_frame,
    write_all,
)

# Not `-m`: that would put the current directory before the paths this process imports from.
PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; del sys.argv[1:]; from rl_training.envs.worker import main; main()"
SECONDS_TO_CLOSE = 5.0


class CannotUseWorkers(Exception):
    """Why these environments have to run in this process."""


class RemoteTraceback(Exception):
    """Where an environment raised, in a worker process."""

    def __str__(self) -> str:
        return f"in a worker process\n\n{self.args[0]}"


def choose_workers(total_envs: int, cores: int) -> int:
    """How many processes pay, this one included; 0 means that the environments run in this process alone."""
    if total_envs < 4 or cores < 2:
        return 0
    return min(cores, total_envs // 2)


class WorkerStepper:
    """A `Stepper` whose rows are split into `processes` consecutive blocks: the first is ours, the others workers'."""

    def __init__(self, source: EnvSource, size: int, processes: int, timeout: float) -> None:
        _check_sendable(source)
        first, *bounds = np.linspace(0, size, min(processes, size) + 1).round().astype(int).tolist()[1:]
        self.own = LocalStepper(source, first)
        self.block = slice(0, first)
        self.observation, self.action = self.own.observation, self.own.action
        self.workers: list[_Worker] = []
        self._exchanging = True
        try:
            for start, stop in pairwise([first, *bounds]):
                self.workers.append(_Worker(start, stop, timeout))
            for worker in self.workers:
                count = worker.stop - worker.start
                worker.send(json_frame({"env_id": source.env_id, "kwargs": source.kwargs, "count": count}))
            expected = describe(self.own.envs[0].spec, self.observation, self.action)
            for worker in self.workers:
                answer = worker.receive_json()
                if "error" in answer:
                    raise CannotUseWorkers(f"a worker process could not build it: {answer['error']}")
                if answer != expected:
                    raise CannotUseWorkers("this script registers it differently from what a worker process finds")
                worker.layout = Layout(worker.stop - worker.start, self.observation, self.action)
            self._exchanging = False
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, RowsFailed)):
                raise CannotUseWorkers(f"a worker process could not start: {error}") from error
            raise

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self.workers]

    def start(self, rows: Sequence[int], seeds: Sequence[int], histories: Sequence[Array] | None, obs: Array) -> None:
        mine = [k for k, row in enumerate(rows) if row < self.block.stop]
        jobs = {w: [k for k, row in enumerate(rows) if w.start <= row < w.stop] for w in self.workers}

        def ask(worker: _Worker) -> None:
            own = jobs[worker]
            logs = [np.empty(0) if histories is None else histories[k] for k in own]
            command = {
                "do": "start",
                "rows": [rows[k] - worker.start for k in own],
                "seeds": [seeds[k] for k in own],
                "steps": [len(log) for log in logs],
            }
            data = b"".join(np.ascontiguousarray(log, worker.layout.action_dtype).tobytes() for log in logs)
            worker.send(json_frame(command) + HEADER.pack(ACTIONS, len(data)) + data)

        def take(worker: _Worker) -> None:
            for k in jobs[worker]:
                obs[rows[k]] = worker.layout.obs[rows[k] - worker.start]

        def do_own() -> None:
            own_histories = None if histories is None else [histories[k] for k in mine]
            self.own.start([rows[k] for k in mine], [seeds[k] for k in mine], own_histories, obs)

        self._exchange([worker for worker in self.workers if jobs[worker]], ask, do_own, take)

    def step(
        self, actions: Array, active: Array | None, obs: Array, rewards: Array, terminated: Array, truncated: Array
    ) -> None:
        def ask(worker: _Worker) -> None:
            layout, block = worker.layout, worker.block
            layout.actions[...] = actions[block]
            layout.active[...] = True if active is None else active[block]
            worker.send(layout.request)

        def take(worker: _Worker) -> None:
            layout, block = worker.layout, worker.block
            targets = (obs, rewards, terminated, truncated)
            sources = (layout.obs, layout.rewards, layout.terminated, layout.truncated)
            for target, source in zip(targets, sources, strict=True):
                if active is None:
                    target[block] = source
                else:
                    target[block][layout.active] = source[layout.active]

        def do_own() -> None:
            own_active = None if active is None else active[self.block]
            self.own.step(actions, own_active, obs, rewards, terminated, truncated)

        asked = self.workers if active is None else [w for w in self.workers if active[w.block].any()]
        self._exchange(asked, ask, do_own, take)

    def close(self) -> None:
        for worker in self.workers:
            worker.hang_up(politely=not self._exchanging)
        deadline = time.monotonic() + SECONDS_TO_CLOSE
        for worker in self.workers:
            worker.wait_or_kill(max(deadline - time.monotonic(), 0.0))
        self.workers = []
        self.own.close()

    def _exchange(
        self,
        workers: Sequence[_Worker],
        ask: Callable[[_Worker], None],
        do_own: Callable[[], None],
        take: Callable[[_Worker], None],
    ) -> None:
        """Ask all, do our own block, then hear all, so that everyone works at the same time."""
        if self._exchanging:
            raise RuntimeError("an exception cut an earlier step short: close these environments and make new ones")
        self._exchanging = True
        failures: list[RowsFailed] = []

        def succeeds(action: Callable[[], None]) -> bool:
            try:
                action()
            except RowsFailed as failed:
                failures.append(failed)
                return False
            return True

        asked = [worker for worker in workers if succeeds(partial(ask, worker))]
        succeeds(do_own)
        for worker in asked:
            if succeeds(worker.receive_result):
                take(worker)
        self._exchanging = False
        if failures:
            raise min(failures, key=lambda failed: failed.rows[0])  # the one a single process would have met first


class _Worker:
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


def _check_sendable(source: EnvSource) -> None:
    if source.factory is not None:
        raise CannotUseWorkers("it comes from a Python factory")
    try:
        same = json.loads(json.dumps(source.kwargs)) == source.kwargs
    except (TypeError, ValueError):
        same = False
    if not same:
        raise CannotUseWorkers("its env_kwargs are not plain JSON values")
