"""Environments with Dict, Tuple and multi-discrete spaces, for tests."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

NUMBERS = spaces.Dict(
    position=spaces.Box(-2, 2, (2,)),
    inner=spaces.Dict(mode=spaces.Discrete(3, start=1), flags=spaces.MultiBinary(2)),
    gears=spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Box(-1, 1, (2, 2))]),
)
CAMERA = spaces.Box(0, 255, (3, 36, 36), np.uint8)
MIXED = spaces.Dict(camera=CAMERA, position=spaces.Box(-2, 2, (2,)), mode=spaces.Discrete(3))
OBSERVATIONS: dict[str, spaces.Space[Any]] = {
    "numbers": NUMBERS,
    "mixed": MIXED,
    "two images": spaces.Tuple([CAMERA, spaces.Box(0, 255, (1, 40, 36), np.uint8)]),
    "one image": spaces.Dict(camera=CAMERA),
    "multi_discrete": spaces.MultiDiscrete([3, 4]),
    "multi_binary": spaces.MultiBinary(5),
}
ACTIONS: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-2, 2, (2, 2)),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[0, 1]),
    "multi_binary": spaces.MultiBinary(3),
    "discrete": spaces.Discrete(4),
}


class AnySpaces(gym.Env[Any, Any]):
    """Observations drawn from its space; the reward is the sum of the action."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self, observation: str = "numbers", action: str = "discrete", limit: int = 9, render_mode: str | None = None
    ) -> None:
        self.observation_space, self.action_space = OBSERVATIONS[observation], ACTIONS[action]
        self.limit, self.render_mode = limit, render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.draws = 0, np.random.default_rng(seed)
        return self.observe(), {}

    def observe(self) -> Any:
        self.observation_space.seed(int(self.draws.integers(2**31)))
        return self.observation_space.sample()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.steps += 1
        ended = self.steps >= self.limit
        return self.observe(), float(np.sum(action)), ended and self.steps % 2 == 0, ended, {}

    def render(self) -> Any:
        return np.full((8, 8, 3), self.steps, np.uint8)


gym.register("AnySpaces-v0", AnySpaces)
