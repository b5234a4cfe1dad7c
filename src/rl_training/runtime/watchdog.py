"""Ends a run whose environment hangs, with a report that reproduces it.

A thread can look on while an environment sleeps or waits; one that spins inside C code without letting go of Python's
lock is only caught when it runs in a worker process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rl_training.envs.vector import EnvironmentFailure, SeededEnvs


class Watchdog:
    def __init__(self, envs: SeededEnvs, report: Callable[[EnvironmentFailure], None]) -> None:
        self._envs, self._report = envs, report
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        while not self._done.wait(min(self._envs.timeout / 4, 5.0)):
            failure = self._envs.hung()
            if failure is not None:
                self._report(failure)
                os._exit(1)  # the hung step cannot be interrupted
