"""A `Stepper` of Gymnasium's MuJoCo tasks: threads step the physics, and numpy computes the results of all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from rl_training.envs.host.factory import Env, EnvSource
from rl_training.envs.host.mujoco.registry import threaded_task
from rl_training.envs.host.mujoco.tasks import Outcome, Rows, Task, Views
from rl_training.envs.host.mujoco.threads import Job, RowThreads
from rl_training.envs.host.stepping import Array, LocalStepper, Results, RowsFailed, Start, describe_failure


class _Row(NamedTuple):
    """A row whose step is computed here, from the start of an episode on."""

    views: Views
    control: Array
    physics: Job
    dt: float
    limits: list[Any]


class _Batch(NamedTuple):
    """The rows of a step."""

    rows: list[int]
    at: Any  # their place in the results
    arrays: Rows
    controls: list[Array]
    jobs: list[tuple[int, Job]]
    limits: list[list[Any]]


class ThreadedStepper(LocalStepper):
    """Steps the rows of one of Gymnasium's MuJoCo tasks in threads of this process, with the results of its `step`.

    The environments are Gymnasium's own, and so are their resets. A row with settings that the formulas do not cover
    is stepped by its environment.
    """

    def __init__(self, source: EnvSource, size: int, threads: int) -> None:
        super().__init__(source, size)
        found = threaded_task(source)
        assert found is not None, "see `threaded_task`"
        self.settings = _settings(self.envs[0].unwrapped, found)
        self.task = None if self.settings is None else found(self.settings)
        self.rows: list[_Row | None] = [None] * size
        self.batch: _Batch | None = None
        self.threads = RowThreads(max(min(threads, size), 1))

    def start(self, starts: Mapping[int, Start], obs: Array) -> None:
        self.threads.check()
        self.batch = None
        for row in starts:
            self.rows[row] = None
        super().start(starts, obs)
        for row in starts:  # a change of the environment may be new
            self.rows[row] = self._read(self.envs[row])

    def _read(self, env: Env) -> _Row | None:
        """The row of an environment, or None if it must be stepped by its own code."""
        import mujoco

        own: Any = env.unwrapped
        limits: list[Any] = []
        inner: Any = env
        while type(inner) in (TimeLimit, OrderEnforcing):
            limits += [inner] if isinstance(inner, TimeLimit) else []
            inner = inner.env
        task, frames = self.task, getattr(own, "frame_skip", None)
        if task is None or inner is not own or own.render_mode is not None or type(frames) is not int:
            return None
        if _settings(own, type(task)) != self.settings:
            return None
        model, data = own.model, own.data
        if not isinstance(model, mujoco.MjModel) or not isinstance(data, mujoco.MjData):
            return None
        try:
            views = task.views(own)
        except (KeyError, IndexError, ValueError, TypeError):  # a model without a body that the task reads
            return None
        physics = partial(mujoco.mj_step, model, data, frames)
        if task.contact_forces:
            physics = partial(_step_with_forces, physics, partial(mujoco.mj_rnePostConstraint, model, data))
        return _Row(views, data.ctrl, physics, model.opt.timestep * frames, limits)

    def step(self, actions: Array, active: Array | None, results: Results) -> None:
        wanted = range(len(self.rows)) if active is None else np.flatnonzero(active).tolist()
        rows = [row for row in wanted if self.rows[row] is not None]
        if len(rows) < len(wanted):
            others = np.zeros(len(self.rows), np.bool_)
            others[[row for row in wanted if self.rows[row] is None]] = True
            super().step(actions, others, results)
        if not rows:
            return
        if self.batch is None or self.batch.rows != rows:
            self.batch = self._gather(rows)
        assert self.task is not None
        batch, task = self.batch, self.task
        own = np.ascontiguousarray(actions[batch.at])
        before = task.before(batch.arrays)
        for control, action in zip(batch.controls, own, strict=True):
            control[:] = action
        failure = self.threads.run(batch.jobs)
        if failure is not None:
            row, error = failure
            raise RowsFailed([row], describe_failure("step", error)) from error
        self._write(batch, task.after(batch.arrays, own, before), results)

    def _gather(self, rows: Sequence[int]) -> _Batch:
        found = [(row, one) for row in rows if (one := self.rows[row]) is not None]
        views = {name: [one.views[name] for _, one in found] for name in found[0][1].views}
        return _Batch(
            list(rows),
            slice(None) if len(rows) == len(self.rows) else np.array(rows),
            Rows(views, np.array([one.dt for _, one in found])),
            [one.control for _, one in found],
            [(row, one.physics) for row, one in found],
            [one.limits for _, one in found],
        )

    def _write(self, batch: _Batch, outcome: Outcome, results: Results) -> None:
        at, start = batch.at, 0
        for part in outcome.obs:
            stop = start + part.shape[1]
            results.obs[at, start:stop] = part
            start = stop
        results.rewards[at], results.terminated[at] = outcome.reward, outcome.terminated
        results.truncated[at] = [_count(limits) for limits in batch.limits]
        names = self.source.info_metrics
        ended = (results.terminated[at] | results.truncated[at]) if names else np.zeros(1, np.bool_)
        if not ended.any():
            return
        infos = outcome.infos()
        for place in np.flatnonzero(ended):
            numbers = [float(infos[name][place]) if name in infos else np.nan for name in names]
            results.infos[batch.rows[place]] = numbers

    def states(self) -> list[Array]:
        self.threads.check()
        return super().states()

    def close(self) -> None:
        self.threads.close()
        super().close()


def _step_with_forces(step: Job, compute_forces: Job) -> None:
    step()
    compute_forces()


def _count(limits: Sequence[Any]) -> bool:
    """Count a step in the time limits; whether one is reached."""
    reached = False
    for limit in limits:
        limit._elapsed_steps += 1
        reached = reached or limit._elapsed_steps >= limit._max_episode_steps
    return reached


def _settings(env: Any, task: type[Task]) -> dict[str, Any] | None:
    """The settings of an environment by name; None if one of them is missing or not made of plain numbers."""
    found: dict[str, Any] = {}
    for name in task.settings:
        value = getattr(env, f"_{name}", None)
        numbers = value if name.endswith("_range") and isinstance(value, (tuple, list)) else [value]
        kind = bool if name == "terminate_when_unhealthy" else (int, float)
        if len(numbers) != (2 if name.endswith("_range") else 1) or not all(isinstance(one, kind) for one in numbers):
            return None
        found[name] = value
    return found
