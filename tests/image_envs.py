"""A tiny environment that renders, and what its pictures look like."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

HEIGHT, WIDTH = 6, 8


class Dot(gym.Env[np.ndarray, Any]):
    """A bright dot on a line, moved left or right from a random start; the end on the right pays 1 and terminates."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, discrete: bool = True, limit: int | None = 15) -> None:
        self.render_mode, self.discrete, self.limit = render_mode, discrete, limit
        self.observation_space = spaces.Box(0, WIDTH, (1,), np.float32)
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,), np.float32)
        self.at = self.age = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.age = int(self.np_random.integers(WIDTH - 2)), 0
        return np.array([self.at], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        right = action == 1 if self.discrete else float(action[0]) > 0
        self.at, self.age = int(np.clip(self.at + (1 if right else -1), 0, WIDTH - 1)), self.age + 1
        ended = self.at == WIDTH - 1
        return np.array([self.at], np.float32), float(ended), ended, self.age == self.limit, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        return picture(self.at, self.age)


def picture(at: int, age: int) -> np.ndarray:
    frame = np.full((HEIGHT, WIDTH, 3), 40, np.uint8)
    frame[:, at] = (255, 10 * (age % 20), 90)
    return frame


# By importing this: the registry's sweeps train those that learn from images here, where a frame costs microseconds.
DISCRETE_DOT, CONTINUOUS_DOT = "Dot-v0", "ContinuousDot-v0"
for name, is_discrete in ((DISCRETE_DOT, True), (CONTINUOUS_DOT, False)):
    gym.register(name, Dot, max_episode_steps=15, kwargs={"discrete": is_discrete})
