"""Wrappers in the config: `env_kwargs.wrappers`, a mapping from a wrapper's name to its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit

from rl_training.config.fields import Condition, at_least, check, closed_interval, parse, setting
from rl_training.config.yaml_loading import plain_values
from rl_training.core.checks import ConfigError, Problem, UserError, did_you_mean, shown
from rl_training.envs.host.atari import EMULATOR_KWARGS, AtariPreprocessing
from rl_training.envs.host.control_suite import ControlSuite
from rl_training.envs.host.pixels import ActionRepeat, ImageWrapper, PixelObservation

Env = gym.Env[Any, Any]
PATH = ("env_kwargs", "wrappers")
MAX_SIDE = 1024
NAMES = ("pixels", "action_repeat", "atari")

_only_true = Condition("true: networks take (channels, height, width)", lambda value: value is True)


@dataclass(frozen=True)
class PixelSettings:
    """Settings of `wrappers.pixels`: rendered images as observations."""

    resize_shape: tuple[int, int] = setting((84, 84), closed_interval(1, MAX_SIDE))  # height, width
    frame_stack: int = setting(3, closed_interval(1, 64))
    channel_first: bool = setting(True, _only_true)

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class AtariSettings:
    """Settings of `wrappers.atari` in training. Evaluation and videos play whole games with unclipped rewards."""

    noop_max: int = setting(30, at_least(0))
    frame_skip: int = setting(4, at_least(1))
    resize_shape: tuple[int, int] = setting((84, 84), closed_interval(1, MAX_SIDE))
    frame_stack: int = setting(4, closed_interval(1, 64))
    repeat_action_probability: float = setting(0.25, closed_interval(0, 1))  # at each frame; Machado et al. 2018
    clip_rewards: bool = setting(True)  # to their sign
    terminal_on_life_loss: bool = setting(False)
    epsilon: float = setting(0.0, closed_interval(0, 1))  # share of steps with a random action instead of the agent's
    evaluation_epsilon: float = setting(0.0, closed_interval(0, 1))  # the same for evaluation and videos

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Wrappers:
    """Parsed and checked wrappers; None where one is not used."""

    pixels: PixelSettings | None = None
    action_repeat: int = 1
    atari: AtariSettings | None = None

    @property
    def frame_stack(self) -> int:
        """The number of frames in an observation that these wrappers give."""
        return next((one.frame_stack for one in (self.pixels, self.atari) if one is not None), 1)

    def env_kwargs(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the environment itself, with those that the wrappers need."""
        own = dict(kwargs)
        if self.pixels is not None:
            own.setdefault("render_mode", "rgb_array")
        if self.atari is not None:
            for name, value in EMULATOR_KWARGS.items():
                if own.setdefault(name, value) != value:
                    raise UserError(f"env_kwargs.{name} must be left out: wrappers.atari sets it")
            own.pop("max_episode_steps", None)
        return own

    def apply(self, env: Env, name: str, kwargs: Mapping[str, Any]) -> Env:
        """The environment with the wrappers around it."""
        if self.action_repeat > 1:
            env = ActionRepeat(env, self.action_repeat)
        if self.pixels is not None:
            env = PixelObservation(env, name, self.pixels.resize_shape, self.pixels.frame_stack)
        if self.atari is not None:
            if type(env.unwrapped).__module__ != "ale_py.env":
                raise UserError(f"wrappers.atari needs an Atari game such as ALE/Pong-v5, got {name}")
            options = asdict(self.atari)
            del options["evaluation_epsilon"]  # `for_evaluation` has copied it to `epsilon`
            env = AtariPreprocessing(env, **options)
            if kwargs.get("max_episode_steps") is not None:  # the agent's steps, not the emulator's frames
                env = TimeLimit(env, kwargs["max_episode_steps"])
        return env


def image_hint(env_id: str, kinds: Sequence[str]) -> str:
    """The end of a message: the wrapper that gives images, where an algorithm needs them."""
    return f"; {image_wrapper(env_id)} gives images" if "image" in kinds else ""


def image_wrapper(env_id: str) -> str:
    """The key of the wrapper that gives images of this environment."""
    return f"env_kwargs.wrappers.{'atari' if env_id.startswith('ALE/') else 'pixels'}"


def parse_wrappers(values: Any) -> Wrappers:
    """Parse `env_kwargs.wrappers`, or raise a ConfigError with every problem in it."""
    if values is None:
        return Wrappers()
    if not isinstance(values, Mapping):
        raise ConfigError([Problem(PATH, f"wrappers must be a mapping, got {shown(values)}")])
    problems, parsed = [], {}
    for name, settings in values.items():
        try:
            parsed[name] = _parse_one(name, settings)
        except ConfigError as error:
            problems += error.problems
    if "atari" in values and len(values) > 1:
        problems.append(
            Problem((*PATH, "atari"), "wrappers.atari cannot be combined: it skips frames and gives images itself")
        )
    if problems:
        raise ConfigError(problems)
    return Wrappers(**parsed)


def wrappers_with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The configured wrappers, in their order, with all settings filled in."""
    parsed = parse_wrappers(values)
    chosen = {name: getattr(parsed, name) for name in values}
    return {name: one if isinstance(one, int) else plain_values(asdict(one)) for name, one in chosen.items()}


def _parse_one(name: str, settings: Any) -> Any:
    path = (*PATH, str(name))
    if name == "action_repeat":
        if isinstance(settings, bool) or not isinstance(settings, int) or settings < 1:
            raise ConfigError([Problem(path, f"wrappers.action_repeat must be an integer >= 1, got {shown(settings)}")])
        return settings
    kinds: dict[str, Any] = {"pixels": PixelSettings, "atari": AtariSettings}
    if name not in kinds:
        raise ConfigError([Problem(path, f"unknown wrapper {shown(name)}{did_you_mean(str(name), NAMES)}")])
    return parse(kinds[name], {} if settings is None else settings, ".".join(path))


def for_evaluation(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the environment for evaluation: whole games, unclipped rewards."""
    wrappers = kwargs.get("wrappers")
    if not isinstance(wrappers, Mapping) or "atari" not in wrappers:
        return dict(kwargs)
    atari = {"evaluation_epsilon": 0.0, **(wrappers["atari"] or {})}
    changed = {"clip_rewards": False, "terminal_on_life_loss": False, "epsilon": atari["evaluation_epsilon"]}
    return {**kwargs, "wrappers": {**wrappers, "atari": {**atari, **changed}}}


def image_stack(env: Env) -> int:
    """The number of frames in an observation."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, ImageWrapper):
            return env.frame_stack
        env = env.env
    return 1


def episode_limit(env: Env) -> int | None:
    """The time limit of an episode in steps of the agent; None if unknown."""
    steps_each, limits = 1, []
    while isinstance(env, gym.Wrapper):
        if isinstance(env, TimeLimit):
            limits.append(-(-env._max_episode_steps // steps_each))
        elif isinstance(env, ControlSuite) and env.step_limit is not None:
            limits.append(-(-env.step_limit // steps_each))
        elif isinstance(env, ActionRepeat):
            steps_each *= env.times
        elif isinstance(env, AtariPreprocessing):
            frames = env.game.ale.getInt("max_num_frames_per_episode")
            limits += [frames // env.frame_skip] if frames > 0 else []
            break
        env = env.env
    return max(min(limits), 1) if limits else None
