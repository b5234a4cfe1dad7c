"""Threads that step the physics of many rows: MuJoCo releases the interpreter lock while it steps."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

Job = Callable[[], Any]


class _Shared:
    """What the threads share with their owner; they hold nothing else, so that an owner that is dropped ends them."""

    def __init__(self, helpers: int) -> None:
        self.jobs: deque[tuple[int, Job]] = deque()
        self.left: list[int] = []  # a number for each unfinished job; 0 is the last one
        self.failures: list[tuple[int, Exception]] = []
        self.finished = threading.Lock()
        self.wake = [threading.Lock() for _ in range(helpers)]  # locked: its thread sleeps or works
        self.closing = False
        for lock in (self.finished, *self.wake):
            lock.acquire()

    def work(self) -> None:
        """Run jobs until there are none."""
        while True:
            try:
                row, job = self.jobs.popleft()
            except IndexError:
                return
            try:
                job()
            except Exception as error:
                self.failures.append((row, error))
            if not self.left.pop():
                self.finished.release()

    def help(self, wake: threading.Lock) -> None:
        """The life of a thread."""
        while True:
            wake.acquire()
            if self.closing:
                return
            self.work()

    def rouse(self, count: int) -> None:
        for lock in self.wake[:count]:
            if lock.locked():  # else its thread has yet to wake for an earlier step, and finds the new jobs
                lock.release()

    def close(self) -> None:
        self.closing = True
        self.jobs.clear()
        self.rouse(len(self.wake))


class RowThreads:
    """Runs a job for each of several rows in `count` threads: the caller's, which works too, and helpers.

    Idle threads take the next job, so that one that wakes late delays nobody; the caller alone would do all of them.
    """

    def __init__(self, count: int) -> None:
        self._shared = _Shared(count - 1)
        self._cut = False
        self._helpers = [
            threading.Thread(target=self._shared.help, args=(lock,), name=f"physics-{number}", daemon=True)
            for number, lock in enumerate(self._shared.wake, 1)
        ]
        for helper in self._helpers:
            helper.start()
        weakref.finalize(self, self._shared.close)

    def run(self, jobs: Sequence[tuple[int, Job]]) -> tuple[int, Exception] | None:
        """Run the jobs; returns the first row whose job raised, and its exception."""
        self.check()
        self._cut, shared = True, self._shared
        shared.left = list(range(len(jobs)))
        shared.jobs.extend(jobs)
        shared.rouse(len(jobs) - 1)
        shared.work()
        shared.finished.acquire()
        self._cut = False
        failures, shared.failures = shared.failures, []
        return min(failures, key=lambda failure: failure[0]) if failures else None

    def check(self) -> None:
        """Reject use after an exception, such as KeyboardInterrupt, while helpers may still be at work."""
        if self._cut:
            raise RuntimeError("an exception cut an earlier step short: close these environments and make new ones")

    def close(self) -> None:
        """End the threads, after the jobs they are at."""
        self._shared.close()
        for helper in self._helpers:
            helper.join()
