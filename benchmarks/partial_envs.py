"""CartPole without velocities, which an agent without memory cannot balance for long: `partial_envs:…-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

POSITIONS = (0, 2)  # of the cart and of the pole


class WithoutVelocities(gym.ObservationWrapper[Any, Any, Any]):
    """CartPole-v1 whose observation is the cart's position and the pole's angle."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gym.make("CartPole-v1", render_mode=render_mode))
        whole = self.env.observation_space
        assert isinstance(whole, gym.spaces.Box)
        self.observation_space = gym.spaces.Box(whole.low[[*POSITIONS]], whole.high[[*POSITIONS]], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[[*POSITIONS]]


gym.register("CartPoleWithoutVelocities-v0", WithoutVelocities)
