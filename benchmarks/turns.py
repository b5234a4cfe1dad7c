"""Compares programs of this library and of others that take turns on the same cores."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rl_training.core.statistics import bootstrap_interval

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Peer:
    library: str
    algo: str
    settings: list[str]
    script: str = "side_sb3.py"
    python: str | None = None  # its interpreter or the name of its environment; None: the usual one of peers


@dataclass(frozen=True)
class Task:
    """The same work for both sides, as far as possible."""

    algo: str
    env_id: str
    settings: list[str]
    peers: list[Peer]
    stretch: int = 100  # steps per turn
    script: str = "side_ours.py"  # or side_learner.py: updates only
    warm_up: int = 300  # steps before the first turn
    rows: int = 1  # environments that one step of the program steps
    unit: str = "environment steps"


def environment() -> dict[str, str]:
    """The variables of a program of this library, or of a peer."""
    path = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


class Side:
    """A process of one library that runs its turns on request."""

    def __init__(self, python: str, script: str, arguments: list[str]) -> None:
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [python, str(HERE / script), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "ready", f"{script} did not start"
        self.ready_s = time.perf_counter() - started  # imports, compilation and the warm-up

    def run(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def peak_mib(self) -> float:
        """The most memory that the process has had, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass(frozen=True)
class Timed:
    """The rates of one side in its turns, the seconds until it was ready, and its memory."""

    rates: list[float]
    ready_s: float
    peak_mib: int


def in_turns(starts: Sequence[Callable[[], Side]], rounds: int, parallel: int) -> list[Timed | None]:
    """Start programs side by side, some at once, then run their turns one after the other; None: one that failed."""

    def started(start: Callable[[], Side]) -> Side | None:
        try:
            return start()
        except (AssertionError, OSError):
            return None

    with ThreadPoolExecutor(parallel) as pool:
        sides = list(pool.map(started, starts))
    rates: list[list[float]] = [[] for _ in sides]
    try:
        for _ in range(rounds):
            for number, side in enumerate(sides):
                if side is None:
                    continue
                try:
                    rates[number].append(side.run())
                except (ValueError, OSError):  # it ended in the middle of its turn
                    side.stop()
                    sides[number] = None
        return [
            Timed(found, side.ready_s, round(side.peak_mib())) if side is not None else None
            for side, found in zip(sides, rates, strict=True)
        ]
    finally:
        for side in sides:
            if side is not None:
                side.stop()


def compare(
    name: str, task: Task, peer_python: str, rounds: int, stretch: int | None = None
) -> list[dict[str, object]]:
    """The rows of one task, one for each peer: all sides take turns in every round."""
    turns = [task.env_id, str(task.warm_up), str(stretch or task.stretch)]
    starts = [partial(Side, sys.executable, task.script, [task.algo, *turns, *task.settings])]
    for peer in task.peers:
        arguments = [peer.library, peer.algo, *turns, *peer.settings]
        starts.append(partial(Side, peer.python or peer_python, peer.script, arguments))
    ours, *others = in_turns(starts, rounds, parallel=2)
    if ours is None:
        raise OSError(f"{task.script} failed")
    results: list[dict[str, object]] = []
    for peer, theirs in zip(task.peers, others, strict=True):
        row: dict[str, object] = {"task": name, "peer": f"{peer.library} {peer.algo}"}
        if theirs is None:
            results.append({**row, "error": f"{peer.script} failed"})
            continue
        results.append(
            {
                **row,
                "ours_steps_per_s": task.rows * statistics.median(ours.rates),
                "peer_steps_per_s": task.rows * statistics.median(theirs.rates),
                "unit": task.unit,
                "ready_s": [round(ours.ready_s, 1), round(theirs.ready_s, 1)],  # started two at a time
                "peak_mib": [ours.peak_mib, theirs.peak_mib],
                **spread([mine / other for mine, other in zip(ours.rates, theirs.rates, strict=True)]),
            }
        )
    return results


def spread(ratios: list[float]) -> dict[str, object]:
    """The median of the rounds' ratios, its bootstrap interval of 95 %, and all of them."""
    return {
        "ratio_median": statistics.median(ratios),
        "ratio_interval": [round(x, 3) for x in bootstrap_interval(ratios, statistics.median)],
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def machine() -> dict[str, object]:
    return {"platform": platform.platform(), "cores": os.cpu_count()}
