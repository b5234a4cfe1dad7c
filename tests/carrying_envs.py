"""A tiny environment that carries something from one episode to the next, or does not."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Carrying(gym.Env[np.ndarray, np.ndarray]):
    """A point that is pushed about from a random start; what `carries` names of its past moves it a little."""

    made: ClassVar[int] = 0
    closed: ClassVar[int] = 0

    def __init__(self, carries: str = "actions", length: int = 1000, numpy_flags: bool = False) -> None:
        self.observation_space = spaces.Box(-1e4, 1e4, (2,), np.float32)
        self.action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.carries, self.length, self.numpy_flags = carries, length, numpy_flags
        self.life = 0.0 if carries != "construction" else np.random.default_rng().random()
        self.is_open, self.generator, self.taken = True, None, 0
        Carrying.made += 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        assert self.is_open
        if self.generator is None or self.carries != "generator":
            self.generator = np.random.default_rng(seed)
        self.life += {"episodes": 1.0, "length": self.taken}.get(self.carries, 0.0)
        self.at, self.taken = self.generator.random(), 0
        return self.observation(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.taken += 1
        self.at = 0.9 * self.at + 0.1 * float(action[0]) + 1e-3 * self.life
        if self.carries == "actions":
            self.life += float(action[0])
        if self.carries == "chance":
            self.at += 1e-3 * np.random.default_rng().random()
        ended = self.taken >= self.length
        self.life += float(ended and self.carries == "ends")
        return self.observation(), self.at, np.bool_(ended) if self.numpy_flags else ended, False, {}

    def observation(self) -> np.ndarray:
        return np.array([self.at, self.taken], np.float32)

    def close(self) -> None:
        assert self.is_open, "closed twice"
        self.is_open = False
        Carrying.closed += 1


CARRYING = "Carrying-v0"
gym.register(CARRYING, Carrying, max_episode_steps=13)
