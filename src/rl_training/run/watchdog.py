"""Ends a run whose environment hangs, with a report that reproduces it.

A watchdog thread runs while an environment sleeps or waits; an environment that loops in C code while it holds the GIL
is only detected in a worker process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from rl_training.envs.host.vector import EnvironmentFailure, SeededEnvs

CHECKS = 8  # within the timeout


class Watchdog:
    """A context in which environments that exceed their timeout end the process."""

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
        seen, checks = None, 0
        while not self._done.wait(min(self._envs.timeout / CHECKS, threading.TIMEOUT_MAX)):
            # Checks are counted, not seconds: time during which the process was suspended (Ctrl-Z) does not count.
            since = self._envs.busy_since
            checks = checks + 1 if since is not None and since == seen else 0
            seen = since
            if checks >= CHECKS:
                self._report(self._envs.timeout_failure())
                os._exit(1)  # the call cannot be interrupted
