"""A small environment with a success in its info, and settings that a curriculum changes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Walk(gym.Env[np.ndarray, int]):
    """A walk on a line: a success at `target` steps to the right; observes the place, the target and the wind."""

    def __init__(self, target: int = 2, length: int = 6) -> None:
        self.observation_space = spaces.Box(-100, 100, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.target, self.length, self.wind = target, length, 0.0

    def set_wind(self, wind: float) -> None:
        self.wind = float(wind)

    def _observation(self) -> np.ndarray:
        return np.array([self.place, self.target, self.wind], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.normal()), 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.place += (1.0 if action == 1 else -0.5) + self.wind
        success = self.place >= self.target
        info: dict[str, Any] = {"distance": abs(self.target - self.place), "label": "far"}
        if success or self.steps >= self.length:
            info["is_success"] = bool(success)
        return self._observation(), float(success), bool(success), self.steps >= self.length, info


if "Walk-v0" not in gym.registry:
    gym.register("Walk-v0", Walk)
