"""Checks of an environment before training: the API, finite numbers, and how exactly it is restored."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space

from rl_training.core.checks import UserError, one_line
from rl_training.core.rng import stream
from rl_training.core.specs import EnvSpec
from rl_training.envs.host.classification import classify
from rl_training.envs.host.factory import Env, EnvSource, Restore, call_environment, note_once
from rl_training.envs.host.masks import WHERE, InvalidMask, given_mask, masks_checked, newest_mask, valid_action
from rl_training.envs.host.pixels import is_flag, is_number
from rl_training.envs.host.wrappers import episode_limit, image_stack, image_wrapper
from rl_training.envs.spaces import ActionCodec, ObservationCodec, env_spec, make_codecs
from rl_training.envs.spaces.leaves import Leaf

PROBE_STEPS = 12
REPORT_AFTER = 2.0  # seconds
MIN_IMAGE_SIDE = 32  # pixels; smaller arrays may be boards, which a vector can represent


@dataclass(frozen=True)
class Conformance:
    """The spec of an environment, and how it is restored on resume."""

    spec: EnvSpec
    restore: Restore
    rebuild_ms: float | None = None  # time to rebuild it, where that is done for every episode


@dataclass(frozen=True)
class Takes:
    """What an algorithm can use of an environment, beyond what all of them can."""

    masks: bool = False  # action masks: part of the observations where the environment gives them
    unbounded_actions: bool = False

    @classmethod
    def of(cls, spec: EnvSpec) -> Takes:
        """What an agent uses that was trained on this spec."""
        return cls(spec.observation.mask > 0, not spec.action.bounded)


PLAIN = Takes()


def check_spaces(source: EnvSource, takes: Takes = PLAIN) -> EnvSpec:
    """The spec of an environment, after a dozen steps of one copy; rejects one that violates the API."""
    env = source.make()
    try:
        return _conforming(env, source.env_id, takes)
    finally:
        env.close()


def check_equal(spec: EnvSpec, found: EnvSpec, source: EnvSource) -> None:
    """Reject the spec of an environment that is not the one that an agent was trained on."""
    if found != spec:
        raise UserError(f"the agent was trained on {spec}, {source.env_id} has {found}")


def check_environment(source: EnvSource, seed: int = 0, takes: Takes = PLAIN) -> Conformance:
    """`check_spaces`, and how exactly the environment is restored, unless `source` has that already."""
    if source.restore is not None:
        return Conformance(check_spaces(source, takes), source.restore)
    env = source.make()
    try:
        spec = _conforming(env, source.env_id, takes)
        with _reported_when_slow(source.env_id):
            found = classify(env, matching(source, spec), seed)
        return Conformance(spec, found.restore, found.rebuild_ms)
    finally:
        env.close()


@contextmanager
def _reported_when_slow(name: str) -> Iterator[None]:
    """Print a line where the check is slow: an environment of 10 ms a step takes 20 s."""
    text = f"checking environment {name!r} before training: does it repeat itself after other episodes?"
    timer = threading.Timer(REPORT_AFTER, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def classified(source: EnvSource, takes: Takes = PLAIN) -> EnvSource:
    """The source with `restore` set, by a check if needed."""
    if source.restore is not None:
        return source
    return with_conformance(source, check_environment(source, takes=takes))


def with_conformance(source: EnvSource, found: Conformance | None) -> EnvSource:
    """The source with the result of a check, if there was one."""
    return source if found is None else replace(matching(source, found.spec), restore=found.restore)


def matching(source: EnvSource, spec: EnvSpec) -> EnvSource:
    """The source whose observations have an action mask where those of the spec have one."""
    return replace(source, masked=spec.observation.mask > 0)


def _conforming(env: Env, name: str, takes: Takes) -> EnvSpec:
    for space in ("observation_space", "action_space"):
        if not isinstance(getattr(env, space, None), Space):
            raise UserError(f"environment {name!r}: it has no {space}, which must be a gymnasium.Space")
    observation, action = make_codecs(env.observation_space, env.action_space, masked=False)
    if not takes.unbounded_actions:
        action.require_bounds()
    _reject_unsupported_images(observation, name)
    if _probe(env, observation, action, name, takes.masks):
        observation = ObservationCodec(env.observation_space, action.spec)
    return env_spec(observation, action, image_stack(env), episode_limit(env))


def _reject_unsupported_images(observation: ObservationCodec, name: str) -> None:
    """Reject images of another shape or dtype, which would be treated as vectors of tens of thousands of numbers."""
    for leaf in observation.leaves:
        shape = leaf.space.shape or ()
        flat = len(shape) == 2 and leaf.space.dtype == np.uint8
        if not leaf.is_image and (flat or len(shape) > 2) and sorted(shape)[-2] >= MIN_IMAGE_SIDE:
            raise UserError(
                f"environment {name!r}: its {leaf.label} is {leaf.space.dtype} {shape}, and images must be uint8 "
                f"(channels, height, width); {image_wrapper(name)} gives them"
            )


def _probe(env: Env, observation: ObservationCodec, action: ActionCodec, name: str, takes_masks: bool) -> bool:
    """Check a few steps of random actions, valid ones where masks are taken; returns whether it gives such masks."""
    rng = stream(0, "conformance")
    answer: Any = call_environment(name, "reset", lambda: env.reset(seed=7))
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise UserError(f"environment {name!r}: reset must return (observation, info), got {_shown(answer)}")
    _check_observation(answer[0], observation, name, "reset")
    takes_masks = takes_masks and action.spec.mask_size > 0
    with masks_checked(name, "reset"):
        masked = takes_masks and given_mask(env, answer[1]) is not None
        mask = newest_mask(env, answer[1], action.spec) if masked else None
    for _ in range(PROBE_STEPS):
        drawn = action.spec.sample(rng, 1)
        choice = action.to_env(drawn)[0] if mask is None else valid_action(action, drawn[0], mask)
        answer = call_environment(name, "step", partial(env.step, choice))
        if not (isinstance(answer, tuple) and len(answer) == 5):
            raise UserError(
                f"environment {name!r}: step must return (observation, reward, terminated, truncated, info), "
                f"got {_shown(answer)}"
            )
        obs, reward, terminated, truncated, info = answer
        if not is_number(reward) or not np.isfinite(reward):
            raise UserError(f"environment {name!r}: step must return a finite number as reward, got {reward!r}")
        if not (is_flag(terminated) and is_flag(truncated)):
            raise UserError(
                f"environment {name!r}: step must return booleans for terminated and truncated, "
                f"got {terminated!r} and {truncated!r}"
            )
        _check_observation(obs, observation, name, "step")
        with masks_checked(name, "step"):
            if takes_masks and not masked and given_mask(env, info) is not None:
                raise InvalidMask(f"gave an action mask and reset gave none: reset must give one too, {WHERE}")
            if terminated or truncated:
                break
            mask = newest_mask(env, info, action.spec) if masked else None
    return masked


def _check_observation(value: Any, observation: ObservationCodec, name: str, what: str) -> None:
    try:
        observation.check_form(value)
        parts = [(leaf, leaf.value_in(value)) for leaf in observation.leaves]
    except (ValueError, TypeError, LookupError) as error:
        space = type(observation.space).__name__
        raise UserError(f"environment {name!r}: {what} returned no {space} of its space: {one_line(error)}") from error
    for leaf, part in parts:
        _check_leaf(part, leaf, f"environment {name!r}: {what}")
    _note_wide(name, [(leaf, np.asarray(part).dtype) for leaf, part in parts])


def _note_wide(name: str, dtypes: list[tuple[Leaf, np.dtype[Any]]]) -> None:
    """Report once that the floats of an environment are cast to the dtypes of its space."""
    wide = [(leaf, dtype) for leaf, dtype in dtypes if isinstance(leaf.space, Box) and dtype != leaf.space.dtype]
    if wide:
        (first, dtype), names = wide[0], ", ".join(repr(leaf.name) for leaf, _ in wide)
        where = f" for {names}" if first.name else ""
        note_once(
            f"environment {name!r} returns {dtype}{where}, the space has {first.space.dtype}: observations are cast"
        )


def _check_leaf(value: Any, leaf: Leaf, where: str) -> None:
    space, label = leaf.space, f" for its {leaf.label}" if leaf.name else ""
    if not isinstance(value, np.ndarray) and space.shape:
        raise UserError(f"{where} must return a numpy array of {space}{label}, got {_shown(value)}")
    array = np.asarray(value)
    if array.shape != (space.shape or ()):
        raise UserError(f"{where} returned shape {array.shape}{label}, the space has {space.shape}")
    if array.dtype != space.dtype and isinstance(space, Box):
        if not array.dtype.kind == np.dtype(space.dtype).kind == "f":
            raise UserError(f"{where} returned dtype {array.dtype}{label}, the space has {space.dtype}")
        value = array.astype(space.dtype)
    if not np.isfinite(array).all():
        raise UserError(f"{where} returned {_an_observation(leaf)} with NaN or infinity")
    if not space.contains(value):
        raise UserError(f"{where} returned {_an_observation(leaf)} outside {space}: {_shown(value)}")


def _an_observation(leaf: Leaf) -> str:
    return f"an {leaf.label}"


def _shown(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:77] + "..."
