"""Does the config fit the environment and the checkpoint? Asked before anything is built."""

from __future__ import annotations

from rl_training.algorithms.base import Learner
from rl_training.algorithms.catalogue import algorithm_names, learner_class
from rl_training.core.checks import UserError
from rl_training.core.types import EnvShape
from rl_training.envs.spaces import space_to_dict
from rl_training.envs.vector import SeededEnvs
from rl_training.experiment.checkpointing import Checkpoint


def check_fit(cls: type[Learner], shape: EnvShape, env_id: str) -> None:
    """The algorithm against the environment's spaces, with the algorithms that would fit."""
    if cls.discrete_actions != shape.discrete:
        fitting = [name for name in algorithm_names() if learner_class(name).discrete_actions == shape.discrete]
        has = f"Discrete({shape.action_dim})" if shape.discrete else f"Box({shape.action_dim},)"
        needs = "Discrete" if cls.discrete_actions else "Box"
        raise UserError(f"{cls.name} needs {needs} actions; {env_id} has {has}; use {', '.join(fitting)}")
    if len(shape.obs_shape) == 3 and not cls.image_observations:
        raise UserError(f"{cls.name} takes vectors; {env_id} gives images of shape {shape.obs_shape}")
    if len(shape.obs_shape) != 3 and cls.image_observations:
        raise UserError(f"{cls.name} takes images; {env_id} gives vectors of shape {shape.obs_shape}")


def check_same_spaces(checkpoint: Checkpoint, envs: SeededEnvs) -> None:
    """A run goes on only in the environment it came from."""
    for name, codec in (("observation_space", envs.observation), ("action_space", envs.action)):
        before, now = checkpoint.state[name], space_to_dict(codec.space)
        if before != now:
            changed = [f"{key} {before.get(key)} -> {now.get(key)}" for key in now if before.get(key) != now[key]]
            raise UserError(f"{name} has changed since the checkpoint: {', '.join(changed)}")
