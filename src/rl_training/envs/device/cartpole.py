"""CartPole-v1 (Barto, Sutton, Anderson 1983) with Gymnasium's constants and order of operations."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rl_training.core.specs import EnvSpec, discrete, vector
from rl_training.envs.device.base import DeviceEnv

GRAVITY = 9.8
POLE_MASS = 0.1
TOTAL_MASS = POLE_MASS + 1.0
HALF_LENGTH = 0.5  # of the pole
POLE_MASS_LENGTH = POLE_MASS * HALF_LENGTH
FORCE = 10.0
TIME_STEP = 0.02  # seconds
MAX_ANGLE = 12 * 2 * math.pi / 360
MAX_POSITION = 2.4
MAX_START = 0.05


class CartPole(DeviceEnv):
    """Physical state and observation: position, velocity, angle and angular velocity."""

    spec = EnvSpec(vector(4), discrete(2), episode_limit=500)
    gymnasium_id = "CartPole-v1"
    num_draws = 4

    @staticmethod
    def initial(uniforms: Tensor) -> Tensor:
        return (2 * uniforms - 1) * MAX_START

    @staticmethod
    def transition(physics: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One Euler step; action 1 pushes to the right, 0 to the left."""
        x, x_dot, theta, theta_dot = physics.unbind(1)
        force = torch.where(actions == 1, FORCE, -FORCE)
        cos, sin = theta.cos(), theta.sin()
        temp = (force + POLE_MASS_LENGTH * theta_dot.square() * sin) / TOTAL_MASS
        theta_acc = (GRAVITY * sin - cos * temp) / (HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos.square() / TOTAL_MASS))
        x_acc = temp - POLE_MASS_LENGTH * theta_acc * cos / TOTAL_MASS
        x = x + TIME_STEP * x_dot
        x_dot = x_dot + TIME_STEP * x_acc
        theta = theta + TIME_STEP * theta_dot
        theta_dot = theta_dot + TIME_STEP * theta_acc
        terminated = (x.abs() > MAX_POSITION) | (theta.abs() > MAX_ANGLE)
        return torch.stack([x, x_dot, theta, theta_dot], 1), torch.ones_like(x), terminated

    @staticmethod
    def observe(physics: Tensor) -> Tensor:
        return physics
