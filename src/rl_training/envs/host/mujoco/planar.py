"""Robots that move in a plane: HalfCheetah, Walker2d, Hopper and Swimmer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from rl_training.envs.host.mujoco.tasks import (
    Array,
    HealthyV4,
    Names,
    Outcome,
    Rows,
    Task,
    Views,
    plane_infos,
    square_sums,
    strictly_between,
)


class HalfCheetah(Task):
    settings: ClassVar[Names] = (
        "forward_reward_weight",
        "ctrl_cost_weight",
        "exclude_current_positions_from_observation",
    )
    forward = "reward_forward"  # its name in the infos

    def views(self, env: Any) -> Views:
        return {**super().views(env), "x": env.data.qpos[:1]}

    def before(self, rows: Rows) -> Array:
        return rows["x"][:, 0]

    def after(self, rows: Rows, actions: Array, before: Array) -> Outcome:
        qpos, qvel = rows["qpos"], rows["qvel"]
        x_velocity = (qpos[:, 0] - before) / rows.dt
        forward = self.given.forward_reward_weight * x_velocity
        cost = self.given.ctrl_cost_weight * square_sums(actions)

        def infos() -> Mapping[str, Array]:
            return {"x_position": qpos[:, 0], "x_velocity": x_velocity, self.forward: forward, "reward_ctrl": -cost}

        return Outcome([self.positions(qpos, 1), qvel], forward - cost, False, infos)


class HalfCheetahV4(HalfCheetah):
    forward = "reward_run"


class Walker2d(HalfCheetah):
    settings: ClassVar[Names] = (
        *HalfCheetah.settings,
        "healthy_reward",
        "terminate_when_unhealthy",
        "healthy_z_range",
        "healthy_angle_range",
    )

    def healthy(self, qpos: Array, qvel: Array) -> Array:
        (min_z, max_z), (min_angle, max_angle) = self.given.healthy_z_range, self.given.healthy_angle_range
        return strictly_between(min_z, qpos[:, 1], max_z) & strictly_between(min_angle, qpos[:, 2], max_angle)

    def after(self, rows: Rows, actions: Array, before: Array) -> Outcome:
        qpos, qvel = rows["qpos"], rows["qvel"]
        x_velocity = (qpos[:, 0] - before) / rows.dt
        forward = self.given.forward_reward_weight * x_velocity
        healthy = self.healthy(qpos, qvel)
        survive = self.healthy_reward(healthy)
        cost = self.given.ctrl_cost_weight * square_sums(actions)

        def infos() -> Mapping[str, Array]:
            found = {"x_position": qpos[:, 0], "x_velocity": x_velocity}
            height = qpos[:, 1] - rows["init_qpos"][:, 1]
            return found | self.more_infos(height, forward, -cost, survive)

        terminated = ~healthy & self.given.terminate_when_unhealthy
        return Outcome([self.positions(qpos, 1), np.clip(qvel, -10, 10)], forward + survive - cost, terminated, infos)

    def more_infos(self, height: Array, forward: Array, cost: Array, survive: Array) -> dict[str, Array]:
        """The infos of version 5 alone."""
        names = ("z_distance_from_origin", "reward_forward", "reward_ctrl", "reward_survive")
        return dict(zip(names, (height, forward, cost, survive), strict=True))


class Walker2dV4(HealthyV4, Walker2d):
    def more_infos(self, height: Array, forward: Array, cost: Array, survive: Array) -> dict[str, Array]:
        return {}


class Hopper(Walker2d):
    settings: ClassVar[Names] = (*Walker2d.settings, "healthy_state_range")

    def healthy(self, qpos: Array, qvel: Array) -> Array:
        low, high = self.given.healthy_state_range
        states = np.concatenate([qpos, qvel], axis=1)[:, 2:]
        return super().healthy(qpos, qvel) & strictly_between(low, states, high).all(axis=1)


class HopperV4(HealthyV4, Hopper):
    more_infos = Walker2dV4.more_infos


class Swimmer(Task):
    settings = ("forward_reward_weight", "ctrl_cost_weight", "exclude_current_positions_from_observation")
    forward: ClassVar[Names] = ("reward_forward",)  # its names in the infos

    def views(self, env: Any) -> Views:
        return {**super().views(env), "xy": env.data.qpos[:2]}

    def before(self, rows: Rows) -> Array:
        return rows["xy"]

    def after(self, rows: Rows, actions: Array, before: Array) -> Outcome:
        qpos, qvel = rows["qpos"], rows["qvel"]
        velocity = (qpos[:, :2] - before) / rows.dt[:, None]
        forward = self.given.forward_reward_weight * velocity[:, 0]
        cost = self.given.ctrl_cost_weight * square_sums(actions)

        def infos() -> Mapping[str, Array]:
            return plane_infos(qpos[:, :2], velocity) | dict.fromkeys(self.forward, forward) | {"reward_ctrl": -cost}

        return Outcome([self.positions(qpos, 2), qvel], forward - cost, False, infos)


class SwimmerV4(Swimmer):
    forward = ("reward_fwd", "forward_reward")
