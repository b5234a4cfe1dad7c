"""Specs and shapes that follow from spaces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium import spaces

from rl_training.core.specs import EnvSpec
from rl_training.envs.spaces.actions import ActionCodec
from rl_training.envs.spaces.files import space_from_dict
from rl_training.envs.spaces.observations import ObservationCodec


def env_spec(
    observation: ObservationCodec, action: ActionCodec, frame_stack: int = 1, episode_limit: int | None = None
) -> EnvSpec:
    """The spec of an environment with these spaces."""
    return EnvSpec(replace(observation.spec, frames=frame_stack), action.spec, episode_limit)


def codecs_of(spec: EnvSpec) -> tuple[ObservationCodec, ActionCodec]:
    """The codecs of an environment without Gymnasium's spaces: actions in the library's units, [-1, 1] or from 0."""
    observation, action = spec.observation, spec.action
    box = spaces.Box(0, 255, observation.shape, np.uint8)
    if observation.kind == "vector":
        box = spaces.Box(-np.inf, np.inf, observation.shape, np.dtype(observation.dtype).type)
    chosen: spaces.Space[Any] = spaces.Box(-1, 1, action.shape)
    if action.kind == "discrete":
        chosen = spaces.Discrete(action.choices)
    return ObservationCodec(box), ActionCodec(chosen)


def described_shape(values: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of one row of a dataset, from the description of its space by `space_to_dict`."""
    if values["kind"] in ("dict", "tuple"):
        return ObservationCodec(space_from_dict(dict(values))).file_shape
    return () if values["kind"] == "discrete" else tuple(values["shape"])
