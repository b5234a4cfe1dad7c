"""Ends a run whose environment hangs, with a report that reproduces it.

A thread can look on while an environment sleeps or waits; one that spins inside C code without letting go of Python's
lock is only caught when it runs in a worker process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rl_training.envs.host.vector import EnvironmentFailure, SeededEnvs

TICKS = 8  # looks within the time allowed


class Watchdog:
    """Watches environments while it is entered."""

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
        seen, looks = None, 0
        while not self._done.wait(min(self._envs.timeout / TICKS, threading.TIMEOUT_MAX)):
            # Looks are counted, not seconds: a process that was stopped (Ctrl-Z) was not looking.
            since = self._envs.busy_since
            looks = looks + 1 if since is not None and since == seen else 0
            seen = since
            if looks >= TICKS:
                self._report(self._envs.timeout_failure())
                os._exit(1)  # the call cannot be interrupted
