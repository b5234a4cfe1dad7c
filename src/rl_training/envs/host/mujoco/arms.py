"""The tasks of arms and pendulums: Reacher, Pusher, InvertedPendulum and InvertedDoublePendulum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from rl_training.envs.host.mujoco.tasks import Array, Names, Outcome, Rows, Task, Views, norms, square_sums


class Reacher(Task):
    settings: ClassVar[Names] = ("reward_dist_weight", "reward_control_weight")

    def views(self, env: Any) -> Views:
        bodies = {name: env.data.body(name).xpos for name in ("fingertip", "target")}
        return {**super().views(env), **bodies}

    def between(self, rows: Rows) -> Array:
        """From the target to the fingertip."""
        return rows["fingertip"] - rows["target"]

    def after(self, rows: Rows, actions: Array, before: Array | None) -> Outcome:
        between = self.between(rows)
        return self.outcome(rows, actions, between, between[:, :2], self.given)

    def outcome(self, rows: Rows, actions: Array, rewarded: Array, observed: Array, weights: Any) -> Outcome:
        qpos, qvel = rows["qpos"], rows["qvel"]
        distance = -norms(rewarded) * weights.reward_dist_weight
        control = -square_sums(actions) * weights.reward_control_weight
        angles = [one[:2] for one in rows.views["qpos"]]
        cosines, sines = _each(np.cos, angles), _each(np.sin, angles)

        def infos() -> Mapping[str, Array]:
            return {"reward_dist": distance, "reward_ctrl": control}

        return Outcome([cosines, sines, qpos[:, 2:], qvel[:, :2], observed], distance + control, False, infos)


def _each(function: Any, vectors: Sequence[Array]) -> Array:
    """A function of every vector by itself: in a longer array, a vector unit may round some elements differently."""
    return np.concatenate([function(one) for one in vectors]).reshape(len(vectors), -1)


class ReacherV4(Reacher):
    """It rewards the distance before the step."""

    settings = ()

    def before(self, rows: Rows) -> Array:
        return self.between(rows)

    def after(self, rows: Rows, actions: Array, before: Array | None) -> Outcome:
        assert before is not None
        weights = SimpleNamespace(reward_dist_weight=1, reward_control_weight=1)
        return self.outcome(rows, actions, before, self.between(rows), weights)


class Pusher(Task):
    settings = ("reward_near_weight", "reward_dist_weight", "reward_control_weight")

    def views(self, env: Any) -> Views:
        bodies = {name: env.data.body(name).xpos for name in ("tips_arm", "object", "goal")}
        return {**super().views(env), **bodies}

    def after(self, rows: Rows, actions: Array, before: None) -> Outcome:
        tips, thing, goal = rows["tips_arm"], rows["object"], rows["goal"]
        near = -norms(thing - tips) * self.given.reward_near_weight
        distance = -norms(thing - goal) * self.given.reward_dist_weight
        control = -square_sums(actions) * self.given.reward_control_weight

        def infos() -> Mapping[str, Array]:
            return {"reward_dist": distance, "reward_ctrl": control, "reward_near": near}

        obs = [rows["qpos"][:, :7], rows["qvel"][:, :7], tips, thing, goal]
        return Outcome(obs, distance + control + near, False, infos)


class InvertedPendulum(Task):
    def after(self, rows: Rows, actions: Array, before: None) -> Outcome:
        obs = np.concatenate([rows["qpos"], rows["qvel"]], axis=1)
        terminated = ~np.isfinite(obs).all(axis=1) | (np.abs(obs[:, 1]) > 0.2)
        return self.outcome(obs, terminated)

    def outcome(self, obs: Array, terminated: Array) -> Outcome:
        reward = (~terminated).astype(np.int64)
        return Outcome([obs], reward, terminated, lambda: {"reward_survive": reward})


class InvertedPendulumV4(InvertedPendulum):
    def outcome(self, obs: Array, terminated: Array) -> Outcome:
        return Outcome([obs], np.ones(len(obs)), terminated, dict)


class InvertedDoublePendulum(Task):
    settings: ClassVar[Names] = ("healthy_reward",)
    forces: int | None = 1  # of the observation

    def views(self, env: Any) -> Views:
        more = {"tip": env.data.site_xpos[0], "qfrc_constraint": env.data.qfrc_constraint}
        return {**super().views(env), **more}

    def after(self, rows: Rows, actions: Array, before: None) -> Outcome:
        qpos, qvel, tips = rows["qpos"], rows["qvel"], rows["tip"]
        angles = [one[1:] for one in rows.views["qpos"]]
        forces = np.clip(rows["qfrc_constraint"], -10, 10)[:, : self.forces]
        obs = [qpos[:, :1], _each(np.sin, angles), _each(np.cos, angles), np.clip(qvel, -10, 10), forces]
        # By scalars: `**` of a scalar is C's `pow`, which rounds a square differently from a product, now and then.
        distance = np.array([0.01 * x**2 + (y - 2) ** 2 for x, _, y in tips])
        speed = np.array([1e-3 * v1**2 + 5e-3 * v2**2 for v1, v2 in qvel[:, 1:3]])
        terminated = tips[:, 2] <= 1
        alive = self.alive(terminated)

        def infos() -> Mapping[str, Array]:
            return self.more_infos(alive, -distance, -speed)

        return Outcome(obs, alive - distance - speed, terminated, infos)

    def alive(self, terminated: Array) -> Array:
        return np.asarray(self.given.healthy_reward * (~terminated).astype(np.int64))

    def more_infos(self, alive: Array, distance: Array, speed: Array) -> dict[str, Array]:
        return {"reward_survive": alive, "distance_penalty": distance, "velocity_penalty": speed}


class InvertedDoublePendulumV4(InvertedDoublePendulum):
    settings = ()
    forces = None

    def alive(self, terminated: Array) -> Array:
        return np.full(len(terminated), 10)

    def more_infos(self, alive: Array, distance: Array, speed: Array) -> dict[str, Array]:
        return {}
