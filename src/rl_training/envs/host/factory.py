"""Making environments: from an id, `module:Id` on the command line, or a factory in Python."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar
from weakref import WeakValueDictionary

import gymnasium as gym

from rl_training.config.train_config import NO_ENVIRONMENT, TrainConfig
from rl_training.core.checks import UserError, did_you_mean, one_line, shown
from rl_training.core.modules import import_named
from rl_training.envs.host.atari import check_game, register_games
from rl_training.envs.host.control_suite import PREFIX, ControlSuite, register_suite, use_headless_rendering
from rl_training.envs.host.goal_envs import PREFIX as OWN_PREFIX
from rl_training.envs.host.goal_envs import register_goal_envs
from rl_training.envs.host.pixels import NEEDS_EGL, describe_error
from rl_training.envs.host.wrappers import for_evaluation, parse_wrappers
from rl_training.envs.spaces import ActionCodec, ObservationCodec, make_codecs

T = TypeVar("T")
Env = gym.Env[Any, Any]
EnvFactory = Callable[..., Any]  # makes an `Env`, or a `VectorEnv` from (seeds, num_envs, device)
BATCHED = ("seeds", "num_envs", "device")
# By its saved state; by replaying its open episode; by replay, and rebuilt for every episode; not exactly.
Restore = Literal["native", "replay", "rebuilt", "inexact"]

# The prefix of device environments, followed by Gymnasium's id of the same environment.
DEVICE_PREFIX = "torch/"
EXTRAS = {"mujoco": "mujoco", "box2d": "box2d", "Box2D": "box2d", "ale_py": "atari", "pygame": "classic-control"}


_shown_warnings: set[str] = set()  # an environment is made many times
_made: WeakValueDictionary[int, Env] = (
    WeakValueDictionary()
)  # by factories, by id(), to detect one that is returned twice


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print each of Gymnasium's warnings once, as one line without colours and source code."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        note_once(" ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(warning.message)).removeprefix("WARN: ").split()))


def note_once(text: str) -> None:
    """Print a note unless this process printed it before."""
    if text not in _shown_warnings:
        _shown_warnings.add(text)
        print(f"note: {text}", file=sys.stderr)


@dataclass(frozen=True)
class EnvSource:
    """Makes copies of one environment, with the wrappers in `kwargs`."""

    env_id: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    factory: EnvFactory | None = None
    restore: Restore | None = None  # how it is restored on resume; None: not checked yet
    info_metrics: tuple[str, ...] = ()  # names of numbers in the info of an episode's last step
    masked: bool = False  # whether its action masks are part of its observations

    def __post_init__(self) -> None:
        if self.factory is not None:
            check_factory(self.factory)

    @property
    def batched(self) -> bool:
        """Whether the factory makes a `VectorEnv`: its first parameters are `seeds`, `num_envs` and `device`."""
        if self.factory is None:
            return False
        try:
            names = tuple(inspect.signature(self.factory).parameters)
        except (TypeError, ValueError):  # of a built-in
            return False
        return names[: len(BATCHED)] == BATCHED

    def make(self, render_mode: str | None = None) -> Env:
        """A new environment, or a UserError."""
        if self.batched:
            how = ", as for her and for recording data" if render_mode is None else ": set its gymnasium_id"
            raise UserError(f"{self.env_id} is a VectorEnv, where a gymnasium.Env is needed{how}")
        kwargs = dict(self.kwargs)
        wrappers = parse_wrappers(kwargs.pop("wrappers", None))
        if render_mode is not None:
            kwargs["render_mode"] = render_mode
        if wrappers.atari is not None and self.factory is None:
            check_game(self.env_id)
        own = wrappers.env_kwargs(kwargs)
        if own.get("render_mode") == "rgb_array":
            use_headless_rendering()
        env = self._from_factory(own) if self.factory is not None else self._from_id(own)
        try:
            return wrappers.apply(env, self.env_id, kwargs)
        except BaseException:
            env.close()
            raise

    def for_evaluation(self) -> EnvSource:
        """The source for evaluation, without the clipped rewards and shortened episodes of training.

        A `VectorEnv` with a `gymnasium_id` is evaluated on that environment, its twin.
        """
        twin = getattr(self.factory, "gymnasium_id", None) if self.batched else None
        if twin is not None:
            return EnvSource(twin, info_metrics=self.info_metrics, masked=self.masked)
        return replace(self, kwargs=for_evaluation(self.kwargs))

    def _from_id(self, kwargs: dict[str, Any]) -> Env:
        if self.env_id == NO_ENVIRONMENT:
            raise UserError(f"there is no environment: env_id is {NO_ENVIRONMENT}")
        if self.env_id.startswith("ALE/"):
            register_games(self.env_id)
        if self.env_id.startswith(OWN_PREFIX):
            register_goal_envs()
        in_suite = self.env_id.startswith(PREFIX)
        if in_suite:
            register_suite(self.env_id)
        try:
            if ":" in self.env_id:
                _import_module(self.env_id)
            # Our own conformance check runs once before training; Gymnasium's would run at every step.
            with plain_warnings():
                env = gym.make(self.env_id.removeprefix(DEVICE_PREFIX), disable_env_checker=True, **kwargs)
            return ControlSuite(env) if in_suite else env
        except gym.error.DependencyNotInstalled as error:
            raise UserError(f"environment {self.env_id} needs a package that is missing: {error}") from error
        except gym.error.Error as error:
            text = _one_line(error).rstrip(".")
            hint = did_you_mean(self.env_id, gym.registry) if not re.search("did you mean|instead", text, re.I) else ""
            raise UserError(f"environment {self.env_id!r}: {text}{hint}") from error
        except UserError:
            raise
        except ModuleNotFoundError as error:
            extra = EXTRAS.get(str(error.name).split(".")[0])
            how = f"; install it with: pip install 'gymnasium[{extra}]'" if extra else ""
            raise UserError(f"environment {self.env_id!r}: {_one_line(error)}{how}") from error
        except Exception as error:  # any error of the environment's constructor
            text = describe_error(error)
            what = "cannot be rendered" if NEEDS_EGL in text else f"rejected env_kwargs {kwargs}"
            raise UserError(f"environment {self.env_id!r} {what}: {text}") from error

    def _from_factory(self, kwargs: dict[str, Any]) -> Env:
        assert self.factory is not None
        try:
            env = self.factory(**kwargs)
        except TypeError as error:
            text = _one_line(error)
            raise UserError(
                f"the environment factory must accept {', '.join(kwargs) or 'no arguments'}: {text}"
            ) from error
        if not isinstance(env, gym.Env):
            raise UserError(f"the environment factory must return a gymnasium.Env, got {type(env).__name__}")
        if _made.get(id(env)) is env:  # training and evaluation would step the same one
            raise UserError("the environment factory must make a new environment at every call, got the same one again")
        _made[id(env)] = env
        return env


def env_source(config: TrainConfig, env_id: str | None = None, env_factory: EnvFactory | None = None) -> EnvSource:
    """The environment a file speaks of. A module named in a file is not imported: that would run code from it."""
    if env_factory is None and env_id is None:
        if ":" in config.env_id:
            raise UserError(f"this run's environment {config.env_id!r} is in a module; name it again with env_id=...")
        if config.env_id.startswith("<"):
            raise UserError(f"this run's environment {config.env_id} came from Python; pass it again with env=...")
    return EnvSource(env_id or config.env_id, dict(config.env_kwargs), env_factory, info_metrics=config.info_metrics)


def split_env(env: Any) -> tuple[str | None, EnvFactory | None]:
    """An environment given in Python as its id or its factory."""
    if isinstance(env, str):
        return env, None
    check_factory(env)
    return None, env


def env_name(env: str | EnvFactory) -> str:
    """The `env_id` of a config: an id, or the name of a factory in angle brackets."""
    return env if isinstance(env, str) else f"<{getattr(env, '__name__', 'factory')}>"


def environment_codecs(source: EnvSource) -> tuple[ObservationCodec, ActionCodec]:
    """How the observations and actions of an environment with bounded actions are translated."""
    env = source.make()
    try:
        observation, action = make_codecs(env.observation_space, env.action_space, source.masked)
        action.require_bounds()
        return observation, action
    finally:
        env.close()


def call_environment(env_id: str, what: str, call: Callable[[], T]) -> T:
    """Call an environment's own code; an exception in it is one line."""
    try:
        return call()
    except UserError:  # already in one line
        raise
    except Exception as error:
        raise UserError(f"environment {env_id!r}: {what} raised {type(error).__name__}: {one_line(error)}") from error


def check_factory(factory: Any) -> None:
    """Reject an environment in place of a factory: training and evaluation each make their own."""
    if isinstance(factory, (gym.Env, gym.vector.VectorEnv)):
        env_id = factory.spec.id if factory.spec is not None else None
        by_id = f"its id {env_id!r}, or " if env_id else ""
        how = f"gymnasium.make({env_id!r}, **kwargs)" if env_id else f"{type(factory).__name__}(**kwargs)"
        raise UserError(
            f"env must not be an environment, got {type(factory).__name__}; pass {by_id}a function that makes a new "
            f"one at every call: def make_env(**kwargs): return {how}"
        )
    if not callable(factory):
        raise UserError(f"env must be an id or a function that makes an environment, got {shown(factory)}")


def _import_module(env_id: str) -> None:
    """Import the module of `module:Id`."""
    try:
        import_named(env_id)
    except ModuleNotFoundError:
        raise
    except (Exception, SystemExit) as error:  # any error of the module
        module = env_id.partition(":")[0]
        raise UserError(
            f"environment {env_id!r}: module {module} cannot be imported: {describe_error(error)}"
        ) from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
