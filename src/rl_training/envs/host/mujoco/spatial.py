"""Robots that move in space: Ant and Humanoid."""

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


class Ant(Task):
    settings: ClassVar[Names] = (
        "forward_reward_weight",
        "ctrl_cost_weight",
        "contact_cost_weight",
        "healthy_reward",
        "terminate_when_unhealthy",
        "healthy_z_range",
        "contact_force_range",
        "exclude_current_positions_from_observation",
        "include_cfrc_ext_in_observation",
    )
    contact_forces = True

    def views(self, env: Any) -> Views:
        body, forces = env.data.body(env._main_body).xpos, env.data.cfrc_ext.reshape(-1)
        return {**super().views(env), "xy": body[:2], "forces": forces}

    def before(self, rows: Rows) -> Array:
        return rows["xy"]

    def healthy(self, qpos: Array, qvel: Array) -> Array:
        low, high = self.given.healthy_z_range
        finite = np.isfinite(qpos).all(axis=1) & np.isfinite(qvel).all(axis=1)
        return np.asarray(finite & (low <= qpos[:, 2]) & (qpos[:, 2] <= high))

    def after(self, rows: Rows, actions: Array, before: Array) -> Outcome:
        given, qpos, qvel, xy = self.given, rows["qpos"], rows["qvel"], rows["xy"]
        velocity = (xy - before) / rows.dt[:, None]
        forward = velocity[:, 0] * given.forward_reward_weight
        healthy = self.healthy(qpos, qvel)
        survive = self.healthy_reward(healthy)
        control = given.ctrl_cost_weight * square_sums(actions)
        forces = np.clip(rows["forces"], *given.contact_force_range)
        contact = given.contact_cost_weight * square_sums(forces)
        obs = [self.positions(qpos, 2), qvel]
        if given.include_cfrc_ext_in_observation:
            obs.append(forces[:, 6:])  # without the world

        def infos() -> Mapping[str, Array]:
            rewards = {"reward_forward": forward, "reward_ctrl": -control, "reward_contact": -contact}
            return plane_infos(qpos[:, :2], velocity) | rewards | {"reward_survive": survive}

        terminated = ~healthy & given.terminate_when_unhealthy
        return Outcome(obs, forward + survive - (control + contact), terminated, infos)


class AntV4(HealthyV4, Ant):
    settings: ClassVar[Names] = (
        "ctrl_cost_weight",
        "contact_cost_weight",
        "healthy_reward",
        "terminate_when_unhealthy",
        "healthy_z_range",
        "contact_force_range",
        "exclude_current_positions_from_observation",
        "use_contact_forces",
    )

    def views(self, env: Any) -> Views:
        body, forces = env.data.body("torso").xpos, env.data.cfrc_ext.reshape(-1)
        return {**Task.views(self, env), "xy": body[:2], "forces": forces}

    def after(self, rows: Rows, actions: Array, before: Array) -> Outcome:
        given, qpos, qvel, xy = self.given, rows["qpos"], rows["qvel"], rows["xy"]
        velocity = (xy - before) / rows.dt[:, None]
        forward, healthy = velocity[:, 0], self.healthy(qpos, qvel)
        survive = self.healthy_reward(healthy)
        costs = shown = given.ctrl_cost_weight * square_sums(actions)
        obs = [self.positions(qpos, 2), qvel]
        if given.use_contact_forces:
            forces = np.clip(rows["forces"], *given.contact_force_range)
            shown = given.contact_cost_weight * square_sums(forces)  # Gymnasium shows it as the cost of control
            costs = costs + shown
            obs.append(forces)

        def infos() -> Mapping[str, Array]:
            rewards = {"reward_forward": forward, "reward_ctrl": -shown, "reward_survive": survive}
            return plane_infos(xy, velocity) | rewards | {"forward_reward": forward}

        terminated = ~healthy & given.terminate_when_unhealthy
        return Outcome(obs, forward + survive - costs, terminated, infos)


class Humanoid(Task):
    settings: ClassVar[Names] = (
        "forward_reward_weight",
        "ctrl_cost_weight",
        "contact_cost_weight",
        "contact_cost_range",
        "healthy_reward",
        "terminate_when_unhealthy",
        "healthy_z_range",
        "exclude_current_positions_from_observation",
        "include_cinert_in_observation",
        "include_cvel_in_observation",
        "include_qfrc_actuator_in_observation",
        "include_cfrc_ext_in_observation",
    )
    contact_forces = True
    first_body, first_force = 1, 6  # of the observation: without the world, and without the root

    def views(self, env: Any) -> Views:
        data = env.data
        found = {name: getattr(data, name).reshape(-1) for name in ("ctrl", "cinert", "cvel", "cfrc_ext")}
        masses = {"xipos": data.xipos, "mass": env.model.body_mass}
        return {**super().views(env), **found, **masses, "qfrc_actuator": data.qfrc_actuator}

    def before(self, rows: Rows) -> Array:
        return self.mass_centers(rows)

    def mass_centers(self, rows: Rows) -> Array:
        """The centre of mass in the plane."""
        mass, places = rows.views["mass"][0], rows.views["xipos"]
        weighted = np.einsum("b,bj->j", mass, np.concatenate(places, axis=1)).reshape(len(places), 3)
        return np.asarray((weighted / mass.sum())[:, :2])

    def healthy(self, qpos: Array) -> Array:
        low, high = self.given.healthy_z_range
        return strictly_between(low, qpos[:, 2], high)

    def observation(self, rows: Rows, qpos: Array) -> list[Array]:
        given = self.given
        parts = [self.positions(qpos, 2), rows["qvel"]]
        columns = {"cinert": 10, "cvel": 6, "qfrc_actuator": 1, "cfrc_ext": 6}  # of a body or a joint
        for name, width in columns.items():
            if getattr(given, f"include_{name}_in_observation", True) is True:
                first = self.first_force if name == "qfrc_actuator" else self.first_body
                parts.append(rows[name][:, first * width :])
        return parts

    def after(self, rows: Rows, actions: Array, before: Array) -> Outcome:
        given, qpos = self.given, rows["qpos"]
        velocity = (self.mass_centers(rows) - before) / rows.dt[:, None]
        forward = given.forward_reward_weight * velocity[:, 0]
        healthy = self.healthy(qpos)
        survive = self.healthy_reward(healthy)
        control = given.ctrl_cost_weight * square_sums(rows["ctrl"])
        contact = np.clip(given.contact_cost_weight * square_sums(rows["cfrc_ext"]), *given.contact_cost_range)

        def infos() -> Mapping[str, Array]:
            rewards = {"reward_forward": forward, "reward_ctrl": -control, "reward_contact": -contact}
            return plane_infos(qpos[:, :2], velocity) | rewards | {"reward_survive": survive}

        reward = forward + survive - (control + contact)
        terminated = ~healthy & given.terminate_when_unhealthy
        return Outcome(self.observation(rows, qpos), reward, terminated, infos)


class HumanoidV4(HealthyV4, Humanoid):
    settings: ClassVar[Names] = (
        "forward_reward_weight",
        "ctrl_cost_weight",
        "healthy_reward",
        "terminate_when_unhealthy",
        "healthy_z_range",
        "exclude_current_positions_from_observation",
    )
    first_body, first_force = 0, 0

    def after(self, rows: Rows, actions: Array, before: Array) -> Outcome:
        given, qpos, xy = self.given, rows["qpos"], self.mass_centers(rows)
        velocity = (xy - before) / rows.dt[:, None]
        forward = given.forward_reward_weight * velocity[:, 0]
        healthy = self.healthy(qpos)
        survive = self.healthy_reward(healthy)
        cost = given.ctrl_cost_weight * square_sums(rows["ctrl"])

        def infos() -> Mapping[str, Array]:
            rewards = {"reward_linvel": forward, "reward_quadctrl": -cost, "reward_alive": survive}
            return plane_infos(xy, velocity) | rewards | {"forward_reward": forward}

        terminated = ~healthy & given.terminate_when_unhealthy
        return Outcome(self.observation(rows, qpos), forward + survive - cost, terminated, infos)
