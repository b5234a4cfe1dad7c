"""Image observations: an exact resize, frame stacks, and rendered environments."""

from __future__ import annotations

import gc
import importlib.util
import math
import re
import sys
import traceback
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rl_training.core.checks import UserError, one_line

Image = NDArray[np.uint8]  # (channels, height, width)
EXACT_IN_FLOAT32 = 2**24
NEEDS_EGL = "rendering MuJoCo without a display needs EGL (Debian: apt-get install libegl1)"


@cache
def _overlaps(size: int, target: int) -> tuple[int, NDArray[np.float32]]:
    """The number of periods of the weights along one axis, and the weights (target, size) of one period.

    Lengths are in units in which source and target pixels are whole numbers, so the overlaps are too.
    """
    periods = math.gcd(size, target)
    size, target = size // periods, target // periods
    ours, theirs = np.arange(target)[:, None] * size, np.arange(size)[None] * target
    shared = np.minimum(ours + size, theirs + target) - np.maximum(ours, theirs)
    return periods, np.maximum(shared, 0).astype(np.float32)


def resize_area(image: NDArray[np.uint8], height: int, width: int) -> Image:
    """(H, W) or (H, W, C) to (C, height, width): each new pixel is the mean of the area it covers, rounded half up.

    Sums of whole numbers are exact in any order, so the result is the same on every machine.
    """
    image = image if image.ndim == 3 else image[:, :, None]
    rows, columns, channels = image.shape
    if (rows, columns) == (height, width):
        return np.ascontiguousarray(image.transpose(2, 0, 1))
    (down, by_row), (_, by_column) = _overlaps(rows, height), _overlaps(columns, width)
    area = by_row.shape[1] * by_column.shape[1]
    exact = np.float32 if area * 255 < EXACT_IN_FLOAT32 else np.float64
    blocks = image.reshape(down, by_row.shape[1], columns * channels).astype(exact)
    tall = np.matmul(by_row.astype(exact, copy=False), blocks).reshape(height, columns, channels)
    blocks = tall.transpose(2, 0, 1).reshape(-1, by_column.shape[1])
    sums = (blocks @ by_column.T.astype(exact, copy=False)).astype(np.int64 if exact is np.float64 else np.int32)
    means: Image = ((2 * sums + area) // (2 * area)).astype(np.uint8)
    return means.reshape(channels, height, width)


class StatefulWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper with its state as bytes, so that the wrapped environment can be restored natively."""

    def get_state(self) -> bytes:
        raise NotImplementedError

    def set_state(self, state: bytes) -> None:
        raise NotImplementedError


class ImageWrapper(StatefulWrapper):
    """Observations are the last `frame_stack` frames, oldest first; the first frame of an episode is repeated."""

    def __init__(self, env: gym.Env[Any, Any], channels: int, resize_shape: tuple[int, ...], frame_stack: int) -> None:
        super().__init__(env)
        self.frame_stack = frame_stack
        self.resize_shape = (resize_shape[0], resize_shape[1])
        self.channels = channels
        shape = (channels * frame_stack, *self.resize_shape)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.stack: Image = np.zeros(shape, np.uint8)

    def begin(self, frame: Image) -> Image:
        """The stack at the start of an episode."""
        self.stack = np.concatenate([frame] * self.frame_stack)
        return np.array(self.stack)

    def push(self, frame: Image) -> Image:
        """The stack with a new frame."""
        self.stack = np.concatenate([self.stack[self.channels :], frame])
        return np.array(self.stack)

    def get_state(self) -> bytes:
        return self.stack.tobytes()

    def set_state(self, state: bytes) -> None:
        self.stack = np.frombuffer(state, np.uint8).reshape(self.stack.shape).copy()


class PixelObservation(ImageWrapper):
    """Rendered images as observations."""

    def __init__(self, env: gym.Env[Any, Any], name: str, resize_shape: tuple[int, ...], frame_stack: int) -> None:
        modes = env.metadata.get("render_modes") or []
        if "rgb_array" not in modes:
            raise UserError(f"{name} cannot be rendered as pixels: its render modes are {', '.join(modes) or 'none'}")
        if env.render_mode != "rgb_array":
            raise UserError(f"env_kwargs.render_mode must be rgb_array for pixels, {name} has {env.render_mode!r}")
        super().__init__(env, 3, resize_shape, frame_stack)
        self.name = name
        self.render_frame: Callable[[], Any] = env.render
        if env.has_wrapper_attr("render_sized"):  # it can render in that size
            self.render_frame = partial(env.get_wrapper_attr("render_sized"), *self.resize_shape)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        answer: Any = self.env.reset(seed=seed, options=options)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            return answer  # type: ignore[no-any-return]  # for the check before training
        return self.begin(self._frame()), answer[1]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        return (self.push(self._frame()), *answer[1:]) if is_valid_step(answer) else answer

    def _frame(self) -> Image:
        try:
            frame = self.render_frame()
        except Exception as error:
            free_renderer(error)
            raise UserError(f"{self.name} cannot be rendered: {describe_error(error)}") from error
        is_image = isinstance(frame, np.ndarray) and frame.ndim == 3 and frame.shape[2] == 3 and frame.size > 0
        if not (is_image and frame.dtype == np.uint8):
            what = f"{frame.dtype} {frame.shape}" if isinstance(frame, np.ndarray) else type(frame).__name__
            raise UserError(
                f"{self.name} cannot be used as pixels: render() gives {what}, not uint8 (height, width, 3)"
            )
        return resize_area(frame, *self.resize_shape)


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """Repeats each action `times` times, or until the episode ends, and sums the rewards."""

    def __init__(self, env: gym.Env[Any, Any], times: int) -> None:
        super().__init__(env)
        self.times = times

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        total = 0.0
        for _ in range(self.times):
            answer = self.env.step(action)
            if not is_valid_step(answer):
                return answer
            obs, reward, terminated, truncated, info = answer
            total += float(reward)
            if terminated or truncated:
                break
        return obs, total, terminated, truncated, info


def is_valid_step(answer: Any) -> bool:
    """Whether the result of a step has Gymnasium's form; if not, the check before training rejects it."""
    if not (isinstance(answer, tuple) and len(answer) == 5):
        return False
    return is_number(answer[1]) and all(map(is_flag, answer[2:4]))


def is_number(reward: Any) -> bool:
    """Whether a reward is a number of Python or numpy."""
    return isinstance(reward, (int, float, np.integer, np.floating))


def is_flag(value: Any) -> bool:
    """Whether a value is a boolean of Python or numpy."""
    return isinstance(value, (bool, np.bool_))


def describe_error(error: BaseException) -> str:
    """An error in one line, with a hint for rendering errors."""
    try:
        text = one_line(error)
    except Exception:  # str() of PyOpenGL's errors fails where there is no GL library
        text = "no details"
    return f"{type(error).__name__}: {text}{_rendering_hint(error, text)}"


def _rendering_hint(error: BaseException, text: str) -> str:
    graphics = re.search(r"\begl|EGL|OpenGL|GLFW|GLContext|OSMesa|glGetError", f"{type(error).__name__} {text}")
    if graphics is None or "MUJOCO_GL" in text:  # the error lists the valid values of MUJOCO_GL
        return ""
    try:
        has_opengl = importlib.util.find_spec("OpenGL") is not None
    except ValueError:  # a module without a spec
        has_opengl = True
    # MuJoCo imports PyOpenGL only when it renders.
    return f"; {NEEDS_EGL}" if has_opengl else "; rendering MuJoCo needs PyOpenGL (pip install PyOpenGL)"


def free_renderer(error: BaseException) -> None:
    """Free a half-made renderer silently: its `__del__` fails again, and Python would print a traceback."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        link: BaseException | None = error
        while link is not None:
            traceback.clear_frames(link.__traceback__)
            link = link.__cause__ or link.__context__
        gc.collect()
    finally:
        sys.unraisablehook = hook
