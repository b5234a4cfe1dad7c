"""Action masks that Gymnasium environments give: `info["action_mask"]`, or else the method `action_masks()`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError, one_line, shown
from rl_training.core.specs import ArraySpec
from rl_training.envs.host.factory import Env
from rl_training.envs.spaces import ActionCodec
from rl_training.envs.spaces.masks import allowed_action, blocked, flat_mask, read_mask

Array = NDArray[Any]
KEY, METHOD = "action_mask", "action_masks"
WHERE = f"in info[{KEY!r}] or by {METHOD}()"


class InvalidMask(Exception):
    """A missing or invalid action mask; the message continues the name of the call that gave it."""


def given_mask(env: Env, info: Any) -> Any:
    """The mask that an environment gives for its newest observation, as it is; None: it gives none."""
    value = info.get(KEY) if isinstance(info, Mapping) else None
    if value is not None:
        return value
    try:
        method = env.get_wrapper_attr(METHOD) if env.has_wrapper_attr(METHOD) else None
        if method is None:
            return None
        if callable(method):
            return method()
    except Exception as error:
        what = f"{type(error).__name__}: {one_line(error)}"
        raise InvalidMask(f"gave no action mask: {METHOD}() raised {what}") from error
    raise InvalidMask(f"gave no action mask: {METHOD} must be a method, got {shown(method)}")


def newest_mask(env: Env, info: Any, action: ArraySpec, ended: bool = False) -> Array:
    """The checked mask for the newest observation of an environment, as bytes.

    At the end of an episode, where no action follows, a mask that is missing or allows nothing is replaced by ones.
    """
    value = given_mask(env, info)
    if value is None and not ended:
        raise InvalidMask(f"gave no action mask: neither info[{KEY!r}] nor {METHOD}()")
    try:
        if ended and (value is None or blocked(flat_mask(value, action), action)):
            return np.ones(action.mask_size, np.uint8)
        return read_mask(value, action)
    except UserError as error:
        raise InvalidMask(f"gave an invalid action mask: {one_line(error)}") from error


@contextmanager
def masks_checked(name: str, call: str) -> Iterator[None]:
    """Report a missing or invalid mask after a `call` of the environment `name` in one line."""
    try:
        yield
    except InvalidMask as error:
        raise UserError(f"environment {name!r}: {call} {error}") from error


def valid_action(codec: ActionCodec, drawn: Array, mask: Array) -> Array:
    """An action that the mask allows, in the environment's units, from a random one in the library's."""
    found: Array = codec.to_env(allowed_action(codec.spec, drawn, mask)[None])[0]
    return found
