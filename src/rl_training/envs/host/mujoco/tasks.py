"""Observations, rewards and terminations of Gymnasium's MuJoCo tasks for many rows at once, equal bit for bit.

Gymnasium computes them row by row. A formula here is Gymnasium's, in its order and its dtypes (actions are float32,
so is the cost of an action), over arrays with a row for each environment. Sums along the last axis of a contiguous
array are those of its rows; what has no such form is computed row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Views = dict[str, Array]
Names = tuple[str, ...]


class Outcome(NamedTuple):
    """The results of one step of several rows."""

    obs: Sequence[Array]  # the parts of the observation, side by side
    reward: Array
    terminated: Array | bool
    infos: Callable[[], Mapping[str, Array]]  # the numbers in the infos


class Rows:
    """Arrays of several environments: `rows["qpos"]` is a copy with a row for each of them."""

    def __init__(self, views: Mapping[str, Sequence[Array]], dt: Array) -> None:
        self.views, self.dt = views, dt

    def __getitem__(self, name: str) -> Array:
        found = self.views[name]
        return np.concatenate(found).reshape(len(found), -1)


class Task:
    """One of Gymnasium's tasks. `settings`: arguments of its constructor, which it stores with an underscore."""

    settings: ClassVar[Names] = ()
    contact_forces: ClassVar[bool] = False  # whether it reads what `mj_rnePostConstraint` computes

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.given: Any = SimpleNamespace(**settings)

    def views(self, env: Any) -> Views:
        """The arrays that the task reads, flat, as views into the environment's memory."""
        return {"qpos": env.data.qpos, "qvel": env.data.qvel, "init_qpos": np.asarray(env.init_qpos, np.float64)}

    def before(self, rows: Rows) -> Any:
        """What the task reads before the physics."""

    def after(self, rows: Rows, actions: Array, before: Any) -> Outcome:
        """The outcome of the step, after the physics."""
        raise NotImplementedError

    def positions(self, qpos: Array, skipped: int) -> Array:
        """The positions in the observation, without the first ones by default."""
        return qpos[:, skipped:] if self.given.exclude_current_positions_from_observation else qpos

    def healthy_reward(self, healthy: Array) -> Array:
        return np.asarray(healthy * self.given.healthy_reward)


def square_sums(rows: Array) -> Array:
    return np.asarray(np.square(rows).sum(axis=1))


def norms(vectors: Array) -> Array:
    """The norm of every row, by BLAS as in `np.linalg.norm`."""
    # Some kernels of BLAS round by the alignment in memory: rows of four numbers are aligned as an array of its own is.
    rows = np.zeros((len(vectors), 4))
    rows[:, : vectors.shape[1]] = vectors
    rows = rows[:, : vectors.shape[1]]
    return np.asarray(np.sqrt(np.matmul(rows[:, None, :], rows[:, :, None])[:, 0, 0]))


def strictly_between(low: float, values: Array, high: float) -> Array:
    return (low < values) & (values < high)


class HealthyV4:
    """In version 4, an unhealthy step that terminates the episode is rewarded too."""

    given: Any

    def healthy_reward(self, healthy: Array) -> Array:
        rewarded = (healthy | self.given.terminate_when_unhealthy).astype(np.float64)
        return np.asarray(rewarded * self.given.healthy_reward)


def plane_infos(xy: Array, velocity: Array) -> dict[str, Array]:
    found = {"x_position": xy[:, 0], "y_position": xy[:, 1], "distance_from_origin": norms(xy)}
    return found | {"x_velocity": velocity[:, 0], "y_velocity": velocity[:, 1]}
