"""Environments split between this process and worker processes: the same rows and results, in parallel.

This process steps the first block itself: a sleeping process wakes late and with cold caches. The workers never import
the user's `__main__`, so scripts need no guard; environments that a worker cannot build stay in this process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import cloudpickle
import numpy as np

from rl_training.core.checks import one_line
from rl_training.envs.host.changes import Changes
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.frames import ACTIONS, HEADER, StepBuffers, json_frame
from rl_training.envs.host.stepping import Array, LocalStepper, Results, RowsFailed, Start
from rl_training.envs.host.worker import describe
from rl_training.envs.host.worker_process import SECONDS_AFTER_A_CUT, SECONDS_TO_CLOSE, WorkerProcess


class CannotUseWorkers(Exception):
    """The reason why environments have to run in this process."""


def choose_workers(total_envs: int, cores: int) -> int:
    """The number of processes, this one included; 0: the environments run in this process alone."""
    if total_envs < 4 or cores < 2:
        return 0
    return min(cores, total_envs // 2)


def choose_threads(total_envs: int, cores: int) -> int:
    """The number of threads that step environments in one process, where threads can: at least the process's own."""
    return max(choose_workers(total_envs, cores), 1)


class WorkerStepper:
    """A `Stepper` whose rows are split into `processes` blocks: the first is stepped here, the others by workers."""

    def __init__(self, source: EnvSource, size: int, processes: int, timeout: float) -> None:
        setup = _sendable(source)
        first, *bounds = np.linspace(0, size, min(processes, size) + 1).round().astype(int).tolist()[1:]
        self.own = LocalStepper(source, first)
        self.block = slice(0, first)
        self.observation, self.action, self.spec = self.own.observation, self.own.action, self.own.spec
        self.workers: list[WorkerProcess] = []
        self._exchanging = True
        try:
            for start, stop in pairwise([first, *bounds]):
                buffers = StepBuffers(stop - start, self.observation, self.action, len(source.info_metrics))
                self.workers.append(WorkerProcess(start, stop, timeout, buffers))
            for worker in self.workers:
                made = {"count": worker.stop - worker.start, "results": worker.buffers.file}
                worker.send(json_frame({**setup, **made}))
            expected = describe(self.own.envs[0].spec, self.observation, self.action)
            for worker in self.workers:
                answer = worker.receive_json()
                if "error" in answer:
                    raise CannotUseWorkers(f"a worker process could not build it: {answer['error']}")
                if answer != expected:
                    raise CannotUseWorkers("this script registers it differently from what a worker process finds")
            self._exchanging = False
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, RowsFailed)):
                raise CannotUseWorkers(f"a worker process could not start: {error}") from error
            raise

    def start(self, starts: Mapping[int, Start], obs: Array) -> None:
        jobs = {w: {row: starts[row] for row in starts if w.start <= row < w.stop} for w in self.workers}

        def send(worker: WorkerProcess) -> None:
            own = jobs[worker].values()
            logs = [np.empty(0) if start.history is None else start.history for start in own]
            command = {
                "do": "start",
                "rows": [row - worker.start for row in jobs[worker]],
                "seeds": [start.seed for start in own],
                "changes": [start.changes for start in own],
                "steps": [len(log) for log in logs],
            }
            data = b"".join(np.ascontiguousarray(log, worker.buffers.action_dtype).tobytes() for log in logs)
            worker.send(json_frame(command) + HEADER.pack(ACTIONS, len(data)) + data)

        def read(worker: WorkerProcess) -> None:
            for row in jobs[worker]:
                obs[row] = worker.buffers.results.obs[row - worker.start]

        def run_own() -> None:
            self.own.start({row: starts[row] for row in starts if row < self.block.stop}, obs)

        self._exchange([worker for worker in self.workers if jobs[worker]], send, run_own, read)

    def check_changes(self, changes: Changes) -> None:
        self.own.check_changes(changes)

    def step(self, actions: Array, active: Array | None, results: Results) -> None:
        def send(worker: WorkerProcess) -> None:
            buffers, block = worker.buffers, worker.block
            buffers.actions[...] = actions[block]
            buffers.active[...] = True if active is None else active[block]
            worker.send(buffers.request)

        def read(worker: WorkerProcess) -> None:
            buffers, block = worker.buffers, worker.block
            for target, source in zip(results, buffers.results, strict=True):
                if active is None:
                    target[block] = source
                else:
                    target[block][buffers.active] = source[buffers.active]

        def run_own() -> None:
            own_active = None if active is None else active[self.block]
            self.own.step(actions, own_active, results)

        stepped = self.workers if active is None else [w for w in self.workers if active[w.block].any()]
        self._exchange(stepped, send, run_own, read)

    def states(self) -> list[Array]:
        found = self.own.states()
        for worker in self.workers:
            answer: Any = self._request_json(worker, {"do": "states"})
            found += [np.frombuffer(bytearray.fromhex(text), np.uint8) for text in answer["states"]]
        return found

    def set_states(self, rows: Sequence[int], states: Sequence[Array]) -> list[bool]:
        state_of = dict(zip(rows, states, strict=True))
        mine = [row for row in rows if row < self.block.stop]
        arrived = dict(zip(mine, self.own.set_states(mine, [state_of[row] for row in mine]), strict=True))
        for worker in self.workers:
            theirs = [row for row in rows if worker.start <= row < worker.stop]
            command = {"do": "set_states", "rows": [row - worker.start for row in theirs]}
            command["states"] = [state_of[row].tobytes().hex() for row in theirs]
            answer: Any = self._request_json(worker, command)
            arrived.update(zip(theirs, answer["arrived"], strict=True))
        return [arrived[row] for row in rows]

    def _request_json(self, worker: WorkerProcess, command: dict[str, Any]) -> dict[str, object]:
        worker.send(json_frame(command))
        return worker.receive_json()

    def close(self) -> None:
        for worker in self.workers:
            worker.close_pipes(send_close=not self._exchanging)
        deadline = time.monotonic() + (SECONDS_AFTER_A_CUT if self._exchanging else SECONDS_TO_CLOSE)
        for worker in self.workers:
            worker.wait_or_kill(max(deadline - time.monotonic(), 0.0))
        self.workers = []
        self.own.close()

    def _exchange(
        self,
        workers: Sequence[WorkerProcess],
        send: Callable[[WorkerProcess], None],
        run_own: Callable[[], None],
        read: Callable[[WorkerProcess], None],
    ) -> None:
        """Send to all workers, step the own block, then read all replies, so that all work in parallel."""
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

        sent = [worker for worker in workers if succeeds(partial(send, worker))]
        succeeds(run_own)
        for worker in sent:
            if succeeds(worker.receive_result):
                read(worker)
        self._exchanging = False
        if failures:
            raise min(failures, key=lambda failed: failed.rows[0])  # the one that a single process would have raised


def _sendable(source: EnvSource) -> dict[str, Any]:
    """The first message to a worker, from which it makes its environments."""
    setup: dict[str, Any] = {"env_id": source.env_id, "kwargs": source.kwargs, "restore": source.restore}
    setup |= {"factory": None, "info_metrics": source.info_metrics, "masked": source.masked}
    if source.factory is not None:
        try:
            # By value where it is of a script or inside a function, so that neither needs to be imported.
            setup["factory"] = cloudpickle.dumps(source.factory).hex()
        except Exception as error:  # any error of an object that the factory holds
            raise CannotUseWorkers(
                f"its factory cannot be sent to a worker process: {type(error).__name__}: {one_line(error)}"
            ) from error
    try:
        same = json.loads(json.dumps(source.kwargs)) == source.kwargs
    except (TypeError, ValueError):
        same = False
    if not same:
        raise CannotUseWorkers("its env_kwargs are not plain JSON values")
    return setup
