"""Does the config fit the environment, the checkpoint and the machine? Asked before anything is built."""

from __future__ import annotations

from typing import Any

import torch

from rl_training.algorithms.base import Learner, OffPolicySettings
from rl_training.algorithms.catalogue import algorithm_names, learner_class
from rl_training.core.checks import UserError
from rl_training.core.machine import free_memory, gibibytes
from rl_training.core.types import EnvShape
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.replay_buffer import replay_bytes
from rl_training.envs.conformance import check_environment
from rl_training.envs.factory import EnvSource
from rl_training.envs.spaces import ActionCodec, ObservationCodec, space_to_dict
from rl_training.experiment.checkpointing import Checkpoint
from rl_training.experiment.config import TrainConfig


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


def check_same_spaces(checkpoint: Checkpoint, observation: ObservationCodec, action: ActionCodec) -> None:
    """A run goes on only in the environment, or with the kind of data, that it came from."""
    codecs: dict[str, Any] = {"observation_space": observation, "action_space": action}
    for name, codec in codecs.items():
        before, now = checkpoint.state[name], space_to_dict(codec.space)
        if before != now:
            changed = [f"{key} {before.get(key)} -> {now.get(key)}" for key in now if before.get(key) != now[key]]
            raise UserError(f"{name} has changed since the checkpoint: {', '.join(changed)}")


def check_agent(shape: EnvShape, source: EnvSource) -> None:
    """An agent plays only where its observations and actions are of the right shape."""
    conformance = check_environment(source)
    if conformance.shape != shape:
        raise UserError(f"the agent was trained on {shape}, {source.env_id} has {conformance.shape}")


def check_data_memory(dataset: TransitionDataset, device: str) -> None:
    """On a GPU the whole data set lies in its memory; on the host it is already there."""
    tensors = (dataset.obs, dataset.actions, dataset.rewards, dataset.next_obs, dataset.dones)
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else needed * 2
    if needed > 0.9 * free:
        raise UserError(
            f"the data set of {len(dataset)} transitions needs {gibibytes(needed)} on {device}, "
            f"{gibibytes(free)} are free; train with device: cpu"
        )


def check_memory(config: TrainConfig, settings: OffPolicySettings, shape: EnvShape, device: str) -> None:
    """Refuse before allocating, naming the largest size that fits."""
    seeds, capacity = len(config.seed_list), min(settings.buffer_capacity, config.total_timesteps)
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else free_memory()
    needed = replay_bytes(shape, seeds, capacity)
    if needed > 0.9 * free:
        fits = int(capacity * 0.9 * free / needed)
        raise UserError(
            f"buffer_capacity {capacity} for {seeds} seed{'s' * (seeds > 1)} needs {gibibytes(needed)}, "
            f"{gibibytes(free)} are free; at most {fits} fit"
        )
