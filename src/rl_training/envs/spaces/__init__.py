"""Conversion between the spaces of an environment and the library's arrays."""

from rl_training.envs.spaces.actions import ActionCodec
from rl_training.envs.spaces.files import space_from_dict, space_to_dict
from rl_training.envs.spaces.observations import ObservationCodec
from rl_training.envs.spaces.specs import (
    codecs_from_dict,
    codecs_of,
    codecs_to_dict,
    described_shape,
    env_spec,
    make_codecs,
)

__all__ = [
    "ActionCodec",
    "ObservationCodec",
    "codecs_from_dict",
    "codecs_of",
    "codecs_to_dict",
    "described_shape",
    "env_spec",
    "make_codecs",
    "space_from_dict",
    "space_to_dict",
]
