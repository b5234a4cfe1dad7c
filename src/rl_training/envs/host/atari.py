"""Atari games as in Mnih et al. 2015 with the sticky actions of Machado et al. 2018."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import numpy as np

from rl_training.core.checks import UserError
from rl_training.envs.host.pixels import Image, ImageWrapper, resize_area

NOOP = 0
# The wrapper itself skips frames, repeats actions and reads the screen, so that the emulator's state is the whole
# state: with its own sticky actions, the action that it may repeat would be missing.
EMULATOR_KWARGS = {"frameskip": 1, "repeat_action_probability": 0.0, "obs_type": "ram"}


def register_games(env_id: str) -> None:
    """Register the Atari games with Gymnasium."""
    try:
        import ale_py
    except ImportError as error:
        how = "pip install 'rl-training[atari]'"
        raise UserError(f"environment {env_id!r} needs ale_py; install it with: {how}") from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # it would print a banner for every environment
    gym.register_envs(ale_py)


def check_game(env_id: str) -> None:
    """Reject an environment that is not an Atari game."""
    register_games(env_id)
    spec = gym.registry.get(env_id)
    if spec is not None and not str(spec.entry_point).startswith("ale_py"):
        raise UserError(f"wrappers.atari needs an Atari game such as ALE/Pong-v5, got {env_id}")


class AtariPreprocessing(ImageWrapper):
    """Random no-op starts, skipped frames, sticky actions, the maximum of the last two grey screens, a stack of those.

    Every game starts from one power-on state: seeding the emulator again would reload the cartridge, 0.3 s each time.
    The random no-ops and sticky actions are drawn here from the episode's seed.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        *,
        noop_max: int,
        frame_skip: int,
        resize_shape: tuple[int, ...],
        frame_stack: int,
        repeat_action_probability: float,
        clip_rewards: bool,
        terminal_on_life_loss: bool,
        epsilon: float,
    ) -> None:
        super().__init__(env, 1, resize_shape, frame_stack)
        self.noop_max, self.frame_skip, self.sticky = noop_max, frame_skip, repeat_action_probability
        self.epsilon = epsilon
        self.clip_rewards, self.terminal_on_life_loss = clip_rewards, terminal_on_life_loss
        game: Any = env.unwrapped
        self.game: Any = game
        self.screens = np.zeros((2, *game.ale.getScreenDims()), np.uint8)
        env.reset(seed=0)
        self.power_on = game.clone_state(include_rng=True)
        self.first_screen = game.ale.getScreenGrayscale()
        self.rng = np.random.Generator(np.random.PCG64(0))
        self.held = NOOP  # the action that sticky actions may repeat
        self.lives = 0
        self.life_lost = False  # the episode ended with a life, not with the game

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.rng = np.random.Generator(np.random.PCG64(seed))
        info: dict[str, Any] = {}
        if self.life_lost:  # the game continues, after one no-op
            *_, terminated, truncated, info = self._skip(NOOP)
            self.life_lost = not (terminated or truncated)
        if not self.life_lost:
            self._start_game()
        self.life_lost = False
        self.lives = self.game.ale.lives()
        return self.begin(self._screen()), info

    def _start_game(self) -> None:
        self.env.reset()  # for the wrappers below; the emulator then returns to the power-on state
        self.game.restore_state(self.power_on)
        self.held = NOOP
        self.screens[:] = self.first_screen
        for _ in range(int(self.rng.integers(1, self.noop_max + 1)) if self.noop_max else 0):
            _, _, terminated, truncated, _ = self.env.step(NOOP)
            self.screens[:] = self.game.ale.getScreenGrayscale()
            if terminated or truncated:
                self.env.reset()
                self.game.restore_state(self.power_on)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self.epsilon and self.rng.random() < self.epsilon:
            action = self.rng.integers(self.game.action_space.n)
        reward, terminated, truncated, info = self._skip(int(action))
        lives = self.game.ale.lives()
        if self.terminal_on_life_loss and lives < self.lives and not (terminated or truncated):
            terminated = self.life_lost = True
        self.lives = lives
        if self.clip_rewards:
            reward = float(np.sign(reward))
        return self.push(self._screen()), reward, terminated, truncated, info

    def _skip(self, action: int) -> tuple[float, bool, bool, dict[str, Any]]:
        total = 0.0
        stuck = self.rng.random(self.frame_skip) < self.sticky
        for frame in range(self.frame_skip):
            if not stuck[frame]:
                self.held = action
            _, reward, terminated, truncated, info = self.env.step(self.held)
            total += float(reward)
            if terminated or truncated:
                self.screens[:] = self.game.ale.getScreenGrayscale()
                break
            if frame >= self.frame_skip - 2:
                self.screens[0] = self.screens[1]
                self.game.ale.getScreenGrayscale(self.screens[1])
        return total, bool(terminated), bool(truncated), info

    def _screen(self) -> Image:
        """The maximum of two frames, since some objects are drawn in every other frame only."""
        return resize_area(np.maximum(self.screens[0], self.screens[1]), *self.resize_shape)

    def get_state(self) -> bytes:
        own = {
            "rng": self.rng.bit_generator.state,
            "held": self.held,
            "lives": self.lives,
            "life_lost": self.life_lost,
        }
        header = json.dumps(own).encode()
        return len(header).to_bytes(8, "little") + header + self.screens.tobytes() + super().get_state()

    def set_state(self, state: bytes) -> None:
        start = 8 + int.from_bytes(state[:8], "little")
        own = json.loads(state[8:start])
        generator = np.random.PCG64(0)
        generator.state = own["rng"]
        self.rng = np.random.Generator(generator)
        self.held, self.lives, self.life_lost = own["held"], own["lives"], own["life_lost"]
        end = start + self.screens.nbytes
        self.screens[:] = np.frombuffer(state[start:end], np.uint8).reshape(self.screens.shape)
        super().set_state(state[end:])
