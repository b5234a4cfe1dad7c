"""Specs and shapes that follow from spaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rl_training.core.checks import shown
from rl_training.core.specs import EnvSpec
from rl_training.envs.spaces.actions import ActionCodec
from rl_training.envs.spaces.files import space_from_dict, space_to_dict
from rl_training.envs.spaces.observations import ObservationCodec


def env_spec(
    observation: ObservationCodec, action: ActionCodec, frame_stack: int = 1, episode_limit: int | None = None
) -> EnvSpec:
    """The spec of an environment with these spaces."""
    return EnvSpec(observation.spec.with_frames(frame_stack), action.spec, episode_limit)


def make_codecs(
    observation_space: spaces.Space[Any], action_space: spaces.Space[Any], masked: bool
) -> tuple[ObservationCodec, ActionCodec]:
    """The codecs of an environment with these spaces; `masked`: its action masks are part of its observations."""
    action = ActionCodec(action_space)
    return ObservationCodec(observation_space, action.spec if masked else None), action


def codecs_to_dict(observation: ObservationCodec, action: ActionCodec) -> dict[str, Any]:
    """The spaces of an environment as JSON, and the size of its action mask if that is part of its observations."""
    found: dict[str, Any] = {
        "observation_space": space_to_dict(observation.space),
        "action_space": space_to_dict(action.space),
    }
    return {**found, **({"action_mask": observation.mask} if observation.mask else {})}


def codecs_from_dict(values: Mapping[str, Any]) -> tuple[ObservationCodec, ActionCodec]:
    """The inverse of `codecs_to_dict`. The description is untrusted."""
    mask, action_space = values.get("action_mask", 0), space_from_dict(values["action_space"])
    found = make_codecs(space_from_dict(values["observation_space"]), action_space, masked=mask != 0)
    if type(mask) is not int or mask != found[0].mask:
        raise ValueError(f"action_mask must be 0 or {found[1].spec.mask_size}, got {shown(mask)}")
    return found


def codecs_of(spec: EnvSpec) -> tuple[ObservationCodec, ActionCodec]:
    """The codecs of an environment without Gymnasium's spaces: actions in the library's units, [-1, 1] or from 0."""
    observation, action = spec.observation.without_mask(), spec.action
    box = spaces.Box(0, 255, observation.shape, np.uint8)
    if observation.kind == "vector":
        box = spaces.Box(-np.inf, np.inf, observation.shape, np.dtype(observation.dtype).type)
    bound = 1 if action.bounded else np.inf
    chosen: spaces.Space[Any] = spaces.Box(-bound, bound, action.shape)
    if action.multi_choices:
        chosen = spaces.MultiDiscrete(list(action.multi_choices))
    elif action.kind == "discrete":
        chosen = spaces.Discrete(action.choices)
    return make_codecs(box, chosen, masked=spec.observation.mask > 0)


def described_shape(values: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of one row of a dataset, from the description of its space by `space_to_dict`."""
    if values["kind"] in ("dict", "tuple"):
        return ObservationCodec(space_from_dict(dict(values))).file_shape
    return () if values["kind"] == "discrete" else tuple(values["shape"])
