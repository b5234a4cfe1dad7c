"""An environment whose episodes never end, unless Gymnasium is asked to end them (`max_episode_steps`)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

ENDLESS = "Endless-v0"  # importing this registers it


class Endless(gym.Env[np.ndarray, Any]):
    """Every step pays 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, discrete: bool = True) -> None:
        self.render_mode = render_mode
        self.observation_space = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._observation(), 1.0, False, False, {}

    def _observation(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def render(self) -> np.ndarray:  # type: ignore[override]
        return np.zeros((16, 16, 3), np.uint8)


gym.register(ENDLESS, Endless)
