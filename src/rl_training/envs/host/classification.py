"""How exactly an environment can be restored: by its native state, by replay, only when rebuilt, or not at all.

Two copies play the same episodes, one of them after episodes of other lengths; the results must be equal bit for bit.
The amount of play is a number of episodes and steps, never of seconds, so that the class is deterministic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.core.rng import stream
from rl_training.envs.host.factory import Env, EnvSource, Restore
from rl_training.envs.host.masks import newest_mask, valid_action
from rl_training.envs.host.pixels import PixelObservation
from rl_training.envs.host.snapshots import native_state, restore_native
from rl_training.envs.spaces import ActionCodec, ObservationCodec

NATIVE_ROUNDS = 4  # in which a native state is copied and compared
FRESH_EPISODES = 3  # on which two fresh environments must agree, where a used one differs
SAVED_AT = tuple(2**k for k in range(8))  # steps of an episode at which its native state is taken


@dataclass(frozen=True)
class Schedule:
    """The amount of play. Only the used environment plays `warm_up`, and one of `between` before every round."""

    warm_up: tuple[int, ...]  # steps
    rounds: int  # episodes that both play
    steps: int  # of such an episode, at most
    between: tuple[int, ...] = (1, 4, 9)


# Half a second of BipedalWalker and one whole episode, since state may change at its end. 60 seeds of 60 showed
# BipedalWalker's difference within five rounds.
VECTORS = Schedule(warm_up=(2, 60, 17, 5, 33, 1000), rounds=8, steps=64)
IMAGES = Schedule(warm_up=(2, 9), rounds=3, steps=12)  # rendering one may take 10 ms
# For `wrappers.pixels`, 40 ms per frame without a GPU: the environment below it is compared by VECTORS.
RENDERED = Schedule(warm_up=(2,), rounds=1, steps=6)

LARGE_OBSERVATION = 1024  # numbers: a vector of this size contains images

Actions = NDArray[Any]
View = Callable[[Env], Env]
Trace = list[bytes]


@dataclass(frozen=True)
class Episode:
    """The seed and actions of an episode to play; with a codec, those that its action masks allow."""

    seed: int
    actions: Actions
    masked: ActionCodec | None = None


@dataclass(frozen=True)
class Round:
    """Episodes before, in and after a comparison."""

    between: Episode
    compared: Episode
    following: Episode


@dataclass(frozen=True)
class Stage:
    """One layer of the environment to compare, and the episodes to play in it."""

    view: View
    steps: int  # of an episode
    warm_up: list[Episode]
    rounds: list[Round]


@dataclass(frozen=True)
class Classification:
    """How an environment is restored."""

    restore: Restore
    rebuild_ms: float | None = None  # time to rebuild it, where that is done for every episode


class _Raised(Exception):
    """The environment raised an exception, which training will report with a way to reproduce it."""


def classify(used: Env, source: EnvSource, seed: int = 0) -> Classification:
    """Classify the environments of `source`; `used` is one of them."""
    fresh = source.make()
    has_native = False
    try:
        stages = _stages(used, seed, source.masked)
        has_native = native_state(used) is not None and not source.masked
        if has_native:
            if all(_native_state_is_complete(used, fresh, stage) for stage in stages):
                return Classification("native")
            fresh.close()
            fresh = source.make()
        differs = _first_difference(used, fresh, stages)
    except _Raised:
        return Classification("native" if has_native else "replay")
    finally:
        fresh.close()
    if differs is None:
        return Classification("replay")
    times: list[float] = []
    try:
        agree = all(_fresh_copies_agree(source, stage, differs, times) for stage in stages)
    except _Raised:
        agree = False
    return Classification("rebuilt", round(1e3 * median(times), 1)) if agree else Classification("inexact")


def reset_is_enough(source: EnvSource, seed: int = 0) -> bool:
    """Whether a used environment, once it is reset, plays an episode like a new one; False if that is not known."""
    with closing(source.make()) as used, closing(source.make()) as fresh:
        try:
            return _first_difference(used, fresh, _stages(used, seed, source.masked)) is None
        except _Raised:
            return False


def _stages(env: Env, seed: int, masked: bool) -> list[Stage]:
    make = partial(_stage, seed=seed, masked=masked)
    if not isinstance(env, PixelObservation):
        return [make(env, _whole_env, _schedule(env), number=0)]
    return [make(env.env, _wrapped_env, _schedule(env.env), number=0), make(env, _whole_env, RENDERED, number=1)]


def _wrapped_env(env: Any) -> Env:
    return env.env  # type: ignore[no-any-return]


def _whole_env(env: Env) -> Env:
    return env


def _schedule(env: Env) -> Schedule:
    spec = ObservationCodec(env.observation_space).spec
    return IMAGES if spec.images or spec.size >= LARGE_OBSERVATION else VECTORS


def _stage(env: Env, view: View, schedule: Schedule, seed: int, number: int, masked: bool) -> Stage:
    codec = ActionCodec(env.action_space)
    drawn = iter(range(number << 16, (number + 1) << 16))

    def episode(steps: int) -> Episode:
        rng = stream(seed, "conformance", next(drawn))
        first, drawn_actions = int(rng.integers(2**31)), codec.spec.sample(rng, steps)
        return Episode(first, drawn_actions, codec) if masked else Episode(first, codec.to_env(drawn_actions))

    def one_round(index: int) -> Round:
        between = schedule.between[index % len(schedule.between)]
        return Round(episode(between), episode(schedule.steps), episode(schedule.steps // 2))

    warm_up = [episode(steps) for steps in schedule.warm_up]
    return Stage(view, schedule.steps, warm_up, [one_round(index) for index in range(schedule.rounds)])


def _native_state_is_complete(used: Env, fresh: Env, stage: Stage) -> bool:
    """Whether a used environment's state, loaded into another, gives the same rest of the episode and next episode."""
    used, fresh = stage.view(used), stage.view(fresh)
    _warm_up(used, stage)
    for one in stage.rounds[:NATIVE_ROUNDS]:
        _play(used, one.between)
        states: dict[int, Any] = {}
        trace = _play(used, one.compared, states)
        at = max(step for step in states if step < len(trace) - 1)
        _play(fresh, replace(one.compared, actions=one.compared.actions[:0]))
        if not restore_native(fresh, states[at]):
            return False
        if _continue_episode(fresh, one.compared.actions[at:]) != trace[at + 1 :]:
            return False
        if _play(used, one.following) != _play(fresh, one.following):
            return False
    return True


def _warm_up(used: Env, stage: Stage) -> None:
    for episode in stage.warm_up:
        with suppress(_Raised):  # random actions may break its physics after a while; the compared episodes are shorter
            _play(used, episode)


def _first_difference(used: Env, fresh: Env, stages: list[Stage]) -> Episode | None:
    """The first episode in which a used environment and a fresh (later: less used) one differ."""
    for stage in stages:
        one, other = stage.view(used), stage.view(fresh)
        _warm_up(one, stage)
        for index, turn in enumerate(stage.rounds):
            if index:
                _play(one, turn.between)
            if _play(one, turn.compared) != _play(other, turn.compared):
                return turn.compared
    return None


def _fresh_copies_agree(source: EnvSource, stage: Stage, differs: Episode, times: list[float]) -> bool:
    """Whether fresh copies agree on the episode in which a used one differed, and on some more."""
    shorter = replace(differs, actions=differs.actions[: stage.steps])
    episodes = [shorter, *(turn.compared for turn in stage.rounds)]
    for episode in episodes[:FRESH_EPISODES]:
        traces = []
        for _ in range(2):
            started = time.perf_counter()
            env = source.make()
            made = time.perf_counter()
            try:
                traces.append(_play(stage.view(env), episode))
            finally:
                played = time.perf_counter()
                env.close()
            times.append(made - started + time.perf_counter() - played)
        if traces[0] != traces[1]:
            return False
    return True


def _play(env: Env, episode: Episode, states: dict[int, Any] | None = None) -> Trace:
    try:
        observation, info = env.reset(seed=episode.seed)
        if episode.masked is not None:
            return [_as_bytes(observation), *_play_allowed(env, episode.actions, episode.masked, info)]
    except Exception as error:
        raise _Raised from error
    if states is not None:
        states[0] = native_state(env)
    return [_as_bytes(observation), *_continue_episode(env, episode.actions, states)]


def _play_allowed(env: Env, drawn: Actions, codec: ActionCodec, info: Any) -> Trace:
    """`_continue_episode` with actions that the masks allow; the masks are compared too."""
    trace: Trace = []
    for one in drawn:
        mask = newest_mask(env, info, codec.spec)
        observation, reward, terminated, truncated, info = env.step(valid_action(codec, one, mask))
        trace.append(mask.tobytes() + _step_bytes(observation, reward, terminated, truncated))
        if terminated or truncated:
            break
    return trace


def _continue_episode(env: Env, actions: Sequence[Any] | Actions, states: dict[int, Any] | None = None) -> Trace:
    """The results of each action until the episode ends; stores native states in `states`."""
    trace: Trace = []
    for step, action in enumerate(actions, 1):
        try:
            observation, reward, terminated, truncated, _ = env.step(action.copy())
        except Exception as error:
            raise _Raised from error
        trace.append(_step_bytes(observation, reward, terminated, truncated))
        if terminated or truncated:
            break
        if states is not None and step in SAVED_AT:
            states[step] = native_state(env)
    return trace


def _step_bytes(observation: Any, reward: Any, terminated: Any, truncated: Any) -> bytes:
    flags = bytes([bool(terminated), bool(truncated)])  # np.bool_ is not an int
    return b"".join([_as_bytes(observation), np.float64(reward).tobytes(), flags])


def _as_bytes(observation: Any) -> bytes:
    if isinstance(observation, dict):
        return b"".join(_as_bytes(observation[name]) for name in sorted(observation))
    if isinstance(observation, tuple):
        return b"".join(map(_as_bytes, observation))
    return np.asarray(observation).tobytes()
