"""Paces programs that take turns on the same cores: each runs a turn of steps, or one piece of work, on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any


def observations(space: Any, rows: int) -> Any:
    """One random observation of a Box, or a batch of `rows`."""
    import numpy as np  # not before rl_training, which chooses how it rounds

    shape = space.shape if rows == 1 else (rows, *space.shape)
    return np.random.default_rng(0).normal(size=shape).astype(space.dtype)


class Pacer:
    """Call `step()` after every step. Between turns of `stretch` steps the program waits for a line on stdin.

    `finish` waits for asynchronous work, as on a GPU, at the start and end of a turn.
    """

    def __init__(self, warm_up: int, stretch: int, finish: Callable[[], None] = lambda: None) -> None:
        self.warm_up, self.stretch, self.count, self.finish = warm_up, stretch, 0, finish
        self.answers = sys.stdout
        sys.stdout = sys.stderr  # the answers are the only lines on stdout
        self.started = 0.0

    def step(self) -> None:
        self.count += 1
        past = self.count - self.warm_up
        if past < 0 or past % self.stretch:
            return
        self.finish()
        self.answer(self.stretch / (time.perf_counter() - self.started) if past > 0 else None)
        self.started = time.perf_counter()

    def answer(self, rate: float | None) -> None:
        """Answer with the rate of a turn (None: ready for the first), and wait for the next."""
        self.answers.write("ready\n" if rate is None else f"{rate}\n")
        self.answers.flush()
        if not sys.stdin.readline():
            sys.exit(0)

    def serve(self, work: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> None:
        """One call of `work` a turn, after `prepare`, which is not timed."""
        self.answer(None)
        while True:
            prepare()
            started = time.perf_counter()
            work()
            self.answer(1 / (time.perf_counter() - started))
