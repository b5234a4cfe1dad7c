"""Environments that give action masks: invalid actions end the episode, and only the mask tells which they are."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

SIZES = {"discrete": (12,), "multi_discrete": (4, 5), "multi_binary": (2,) * 6}
SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(12, start=3),
    "multi_discrete": spaces.MultiDiscrete([4, 5], start=[0, 2]),
    "multi_binary": spaces.MultiBinary(6),
}


class Doors(gym.Env[Any, Any]):
    """Survive 50 steps through doors, of which one to three are open at each step: 1 per step, -1 for a closed one.

    `gives`: "info" (`info["action_mask"]`), "method" (`action_masks()`) or "nothing". At step `odd_at` of an episode
    the mask is `odd`: "blocked" (no action is allowed), "missing", "short" or "text". At the end it is all zeros.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        gives: str = "info",
        action: str = "discrete",
        odd: str = "blocked",
        odd_at: int | None = None,
        raises: bool = False,  # instead of ending the episode
        picture: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.action_space, self.sizes, self.render_mode = SPACES[action], SIZES[action], render_mode
        self.odd, self.odd_at, self.raises, self.picture = odd, odd_at, raises, picture
        self.observation_space = spaces.Box(0, 1, (3,), np.float32)
        if picture:
            self.observation_space = spaces.Box(0, 255, (1, 36, 36), np.uint8)
        self.in_info = gives == "info"
        if gives == "method":
            self.action_masks = self._mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.ended = 0, False
        self._open_doors()
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        chosen = np.atleast_1d(np.asarray(action).reshape(-1)) - np.asarray(getattr(self.action_space, "start", 0))
        self.ended = not all(flags[one] for flags, one in zip(self.allowed, chosen, strict=True))
        if self.ended and self.raises:
            raise RuntimeError(f"{action} is closed")
        self.steps += 1
        self._open_doors()
        return self._observation(), -1.0 if self.ended else 1.0, self.ended, self.steps >= 50, self._info()

    def _open_doors(self) -> None:
        """One to three allowed choices of each element, or at least one of two."""
        self.allowed = []
        for size in self.sizes:
            flags = np.zeros(size, bool)
            flags[self.np_random.choice(size, self.np_random.integers(1, min(size, 3) + 1), replace=False)] = True
            self.allowed.append(flags)

    def _mask(self) -> Any:
        odd = self.odd if self.steps == self.odd_at else ""
        if odd == "missing":
            return None
        if odd == "text":
            return "all"
        flags = [np.zeros_like(one) if self.ended or odd == "blocked" else one for one in self.allowed]
        if odd == "short":
            flags = [one[:-1] for one in flags]
        return tuple(flags) if len(flags) > 1 else flags[0]

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask()} if self.in_info else {}

    def _observation(self) -> Any:
        if self.picture:
            return np.full((1, 36, 36), self.steps, np.uint8)
        return np.array([self.steps / 50, *self.np_random.random(2)], np.float32)

    def render(self) -> Any:
        return np.full((8, 8, 3), self.steps, np.uint8)


DOORS = "masked_envs:Doors-v0"
gym.register("Doors-v0", Doors)
gym.register("DoorsMethod-v0", Doors, kwargs={"gives": "method"})
gym.register("DoorsWithout-v0", Doors, kwargs={"gives": "nothing"})
gym.register("DoorsMulti-v0", Doors, kwargs={"action": "multi_discrete"})
gym.register("DoorsBlocked-v0", Doors, kwargs={"odd_at": 15})
