"""Two small environments with goals, `rl_training/BitFlip-v0` and `rl_training/PointReach-v0`.

Their observations are Dicts of `observation`, `achieved_goal` and `desired_goal`, and a reward is -1 until the goal is
reached: 0 at the goal. `compute_reward` takes single goals or batches of them, as in Gymnasium-Robotics.
"""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from numpy.typing import NDArray

from rl_training.core.checks import require

Array = NDArray[Any]
Observation = dict[str, Array]
PREFIX = "rl_training/"
PICTURE = 240  # pixels, the side of a rendered image
WHITE, GREY, GREEN, BLUE = (255, 255, 255), (200, 205, 212), (22, 163, 74), (37, 99, 235)


def register_goal_envs() -> None:
    """Register the environments with Gymnasium."""
    for name, make in (("BitFlip", bit_flip), ("PointReach", point_reach)):
        if f"{PREFIX}{name}-v0" not in gym.registry:
            gym.register(f"{PREFIX}{name}-v0", entry_point=f"{__name__}:{make.__name__}")


def bit_flip(bits: int = 15, max_steps: int | None = None, **options: Any) -> gym.Env[Any, Any]:
    """`BitFlip` with a time limit: by default, as many steps as bits."""
    return _limited(BitFlip(bits, **options), bits if max_steps is None else max_steps)


def point_reach(max_steps: int = 50, **options: Any) -> gym.Env[Any, Any]:
    """`PointReach` with a time limit."""
    return _limited(PointReach(**options), max_steps)


def _limited(env: GoalEnv, steps: int) -> gym.Env[Any, Any]:
    require(steps >= 1, "max_steps", f">= 1, got {steps}")
    return TimeLimit(env, steps)


class GoalEnv(gym.Env[Any, Any]):
    """An environment whose reward depends on the achieved and the desired goal alone."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 15}  # type: ignore[misc]
    goal: Array

    def __init__(self, render_mode: str | None) -> None:
        self.render_mode = render_mode

    def start(self) -> None:
        """Draw a state and a goal."""
        raise NotImplementedError

    def move(self, action: Any) -> None:
        """Change the state."""
        raise NotImplementedError

    def observe(self) -> Observation:
        raise NotImplementedError

    def is_at_goal(self, achieved_goal: Array, desired_goal: Array) -> Array:
        raise NotImplementedError

    def compute_reward(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        """-1 until the goal is reached; one reward, or one for each row of goals."""
        return np.asarray(np.where(self.is_at_goal(achieved_goal, desired_goal), 0, -1), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.start()
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self.move(action)
        obs = self.observe()
        goals = obs["achieved_goal"], obs["desired_goal"]
        info = {"is_success": bool(self.is_at_goal(*goals))}
        return obs, float(self.compute_reward(*goals, info)), self.ends(*goals), False, info

    def ends(self, achieved_goal: Array, desired_goal: Array) -> bool:
        """Whether the state is terminal."""
        return False


class BitFlip(GoalEnv):
    """Turn random bits into others, one per step (Andrychowicz et al. 2017); the goal is a terminal state.

    There are 2 ** bits states, so exploration hardly ever finds the goal.
    """

    def __init__(self, bits: int = 15, render_mode: str | None = None) -> None:
        require(bits >= 1, "bits", f">= 1, got {bits}")
        super().__init__(render_mode)
        self.bits = bits
        space = spaces.MultiBinary(bits)
        self.observation_space = spaces.Dict(observation=space, achieved_goal=space, desired_goal=space)
        self.action_space = spaces.Discrete(bits)

    def start(self) -> None:
        self.state, self.goal = self.np_random.integers(2, size=(2, self.bits), dtype=np.int8)
        if (self.state == self.goal).all():
            self.goal[0] ^= 1

    def move(self, action: Any) -> None:
        self.state[int(action)] ^= 1

    def observe(self) -> Observation:
        return {"observation": self.state.copy(), "achieved_goal": self.state.copy(), "desired_goal": self.goal.copy()}

    def is_at_goal(self, achieved_goal: Array, desired_goal: Array) -> Array:
        return np.asarray((np.asarray(achieved_goal) == np.asarray(desired_goal)).all(-1))

    def compute_terminated(self, achieved_goal: Array, desired_goal: Array, info: Any) -> Array:
        return self.is_at_goal(achieved_goal, desired_goal)

    def ends(self, achieved_goal: Array, desired_goal: Array) -> bool:
        return bool(self.compute_terminated(achieved_goal, desired_goal, {}))

    def render(self) -> Array:
        """A row of squares for the bits, and one below it for the goal."""
        side = max(PICTURE // self.bits, 1)
        rows = np.stack([self.state, self.goal])[..., None]
        colours = np.where(rows > 0, np.array([[BLUE], [GREEN]], np.uint8), np.array(GREY, np.uint8))
        return colours.repeat(2 * side, 0).repeat(side, 1)


class PointReach(GoalEnv):
    """Drive a point with inertia to a small disc in a large square, and stop there."""

    SPEED, INERTIA = 0.5, 0.5  # distance per step at full force; share of the velocity that is kept

    def __init__(self, size: float = 5.0, tolerance: float = 0.25, render_mode: str | None = None) -> None:
        require(size > 0, "size", f"> 0, got {size}")
        require(tolerance > 0, "tolerance", f"> 0, got {tolerance}")
        super().__init__(render_mode)
        self.size, self.tolerance = size, tolerance
        place = spaces.Box(-size, size, (2,), np.float32)
        reach = np.array([size, size, self.SPEED, self.SPEED], np.float32)
        self.observation_space = spaces.Dict(
            observation=spaces.Box(-reach, reach), achieved_goal=place, desired_goal=place
        )
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)

    def start(self) -> None:
        self.position, self.goal = self.np_random.uniform(-self.size, self.size, (2, 2))
        self.velocity = np.zeros(2)

    def move(self, action: Any) -> None:
        force = np.clip(np.asarray(action, np.float64), -1, 1)
        self.velocity = self.INERTIA * self.velocity + (1 - self.INERTIA) * self.SPEED * force
        self.position = np.clip(self.position + self.velocity, -self.size, self.size)

    def observe(self) -> Observation:
        state = np.concatenate([self.position, self.velocity]).astype(np.float32)
        return {"observation": state, "achieved_goal": state[:2].copy(), "desired_goal": self.goal.astype(np.float32)}

    def is_at_goal(self, achieved_goal: Array, desired_goal: Array) -> Array:
        apart = np.asarray(achieved_goal, np.float64) - np.asarray(desired_goal, np.float64)
        return np.asarray(np.square(apart).sum(-1) <= self.tolerance**2)

    def render(self) -> Array:
        """The disc of the goal and the point."""
        axis = np.linspace(-self.size, self.size, PICTURE)
        picture = np.full((PICTURE, PICTURE, 3), WHITE, np.uint8)
        for place, radius, colour in (
            (self.goal, max(self.tolerance, self.size / 40), GREEN),
            (self.position, self.size / 40, BLUE),
        ):
            inside = np.square(axis - place[0])[None] + np.square(axis[::-1] - place[1])[:, None] <= radius**2
            picture[inside] = colour
        return picture
