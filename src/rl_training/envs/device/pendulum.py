"""Pendulum-v1 with Gymnasium's constants and order of operations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.envs.device.base import DeviceEnv

GRAVITY = 10.0
MASS = LENGTH = 1.0
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
TIME_STEP = 0.05  # seconds
MAX_START_ANGLE, MAX_START_SPEED = math.pi, 1.0


class Pendulum(DeviceEnv):
    """Physical state: the angle, 0 upright and not wrapped around, and its velocity. Torque is the only action."""

    spec = EnvSpec(vector(3), continuous(1), episode_limit=200)
    gymnasium_id = "Pendulum-v1"
    num_draws = 2

    @staticmethod
    def initial(uniforms: Tensor) -> Tensor:
        theta, theta_dot = (2 * uniforms - 1).unbind(1)
        return torch.stack([theta * MAX_START_ANGLE, theta_dot * MAX_START_SPEED], 1)

    @staticmethod
    def transition(physics: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step; its cost is that of the state before it."""
        theta, theta_dot = physics.unbind(1)
        torque = (actions[:, 0] * MAX_TORQUE).clamp(-MAX_TORQUE, MAX_TORQUE)
        angle = (theta + math.pi) % (2 * math.pi) - math.pi
        cost = angle.square() + 0.1 * theta_dot.square() + 0.001 * torque.square()
        acceleration = 3 * GRAVITY / (2 * LENGTH) * theta.sin() + 3.0 / (MASS * LENGTH**2) * torque
        theta_dot = (theta_dot + acceleration * TIME_STEP).clamp(-MAX_SPEED, MAX_SPEED)
        theta = theta + theta_dot * TIME_STEP
        return torch.stack([theta, theta_dot], 1), -cost, torch.zeros_like(theta, dtype=torch.bool)

    @staticmethod
    def observe(physics: Tensor) -> Tensor:
        theta, theta_dot = physics.unbind(1)
        return torch.stack([theta.cos(), theta.sin(), theta_dot], 1)
