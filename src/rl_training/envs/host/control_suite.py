"""DeepMind Control (`dm_control/cheetah-run-v0`): vectors instead of dictionaries, images in the requested size."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from typing import Any

import gymnasium as gym
from gymnasium import spaces

from rl_training.core.checks import UserError
from rl_training.envs.host.pixels import describe_error

PREFIX = "dm_control/"
SIDE_CAMERA, QUADRUPED_CAMERA = 0, 2  # the cameras of the pixel papers, e.g. DrQ's dmc2gym
SHADOW_TEXELS = 1024  # a side


def use_headless_rendering() -> None:
    """Set the variables for rendering without a display: MuJoCo needs EGL, pygame a dummy screen."""
    if _no_display():
        os.environ.setdefault("MUJOCO_GL", "egl")
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def _no_display() -> bool:
    return sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _egl_present() -> bool:
    try:
        ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    return True


def register_suite(env_id: str) -> None:
    """Register the Control Suite with Gymnasium."""
    # dm_control chooses its renderer when it is first imported, and that import fails without EGL: a run on state
    # vectors must not fail for it, and one that records a video at the end must have chosen EGL.
    if _no_display():
        os.environ.setdefault("MUJOCO_GL", "egl" if _egl_present() else "disabled")
    try:
        import dm_control
        import shimmy
    except ModuleNotFoundError as error:
        how = "pip install 'rl-training[dmc]'"
        raise UserError(f"environment {env_id!r} needs {error.name}; install it with: {how}") from error
    except Exception as error:  # from the renderer, of many types
        raise UserError(f"environment {env_id!r} cannot be rendered: {describe_error(error)}") from error
    assert dm_control is not None
    gym.register_envs(shimmy)


class ControlSuite(gym.Wrapper[Any, Any, Any, Any]):
    """One vector of all observations, in the order of their names, and the papers' cameras."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.named = env.observation_space
        self.observation_space = spaces.flatten_space(self.named)
        inner: Any = env.unwrapped
        self.inner = inner
        self.metadata = {**env.metadata, "render_fps": max(round(1 / inner.dt), 1)}
        self.camera = QUADRUPED_CAMERA if env.spec is not None and "quadruped" in env.spec.id else SIDE_CAMERA
        self.camera = min(self.camera, self.physics.model.ncam - 1)  # -1: a free one

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(seed=seed, options=options)
        return spaces.flatten(self.named, obs), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return spaces.flatten(self.named, obs), reward, terminated, truncated, info

    def render(self) -> Any:
        return self._render() if self.render_mode == "rgb_array" else super().render()

    def render_sized(self, height: int, width: int) -> Any:
        """Render in this size, as in the papers, instead of shrinking a larger image."""
        # Without a GPU the suite's shadows of 2048 take half the time, and change one pixel in a thousand.
        quality = self.physics.model.vis.quality
        quality.shadowsize = min(quality.shadowsize, SHADOW_TEXELS)
        return self._render(height=height, width=width)

    def _render(self, **size: int) -> Any:
        return self.physics.render(**{"camera_id": self.camera, **self.inner.render_kwargs, **size})

    @property
    def physics(self) -> Any:
        return self.inner._env.physics  # not cached: some tasks rebuild it at every reset

    @property
    def step_limit(self) -> int | None:
        """Steps of an episode, if limited."""
        limit = getattr(self.inner._env, "_step_limit", math.inf)
        return None if math.isinf(limit) else math.ceil(limit)
