"""The replay of a run as a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rl_training.checkpoint.parts import StoredPart
from rl_training.checkpoint.read import Checkpoint, DamagedCheckpoint
from rl_training.checkpoint.schema import ReplayState, find_checkpoint, invalid_file
from rl_training.config.train_config import config_from_dict
from rl_training.core.checks import UserError, one_line
from rl_training.core.machine import free_memory, gibibytes
from rl_training.core.specs import EnvSpec
from rl_training.data.datasets.array_store import MEMORY_SHARE
from rl_training.data.datasets.transitions import Transitions, check_values
from rl_training.data.replay.buffer import field_layout, replay_bytes
from rl_training.data.replay.part import ReplayPart, check_segment, segment_rows
from rl_training.envs.spaces import ActionCodec, ObservationCodec, codecs_from_dict, env_spec, space_to_dict


def is_run(path: Path) -> bool:
    """Whether a path is a run directory or one of its checkpoints."""
    return path.is_dir() and any((path / name).exists() for name in ("run.json", "manifest.json", "checkpoints"))


def load_replay(path: Path, drop_nonfinite: bool = False, memory_share: float = MEMORY_SHARE) -> Transitions:
    """The transitions of all seeds in the replay of a checkpoint, or of a run's newest checkpoint."""
    checkpoint, notes = find_checkpoint(path)
    state = checkpoint.state
    config = config_from_dict(state["config"], allow_module_env=True)
    try:
        observation, action = codecs_from_dict(state)
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise invalid_file(checkpoint.path, error) from error
    _check_memory(checkpoint, len(config.seed_list), env_spec(observation, action), memory_share)
    rows = _segments(checkpoint, len(config.seed_list), config.num_envs, observation, action)
    # The oldest segment may begin before the ring does.
    capacity = StoredPart(checkpoint, ReplayPart.name).parse(ReplayState).capacity
    rows = {name: tensor[:, -capacity:] for name, tensor in rows.items()}
    made = replay_transitions(rows, config.num_envs, observation, action, one_line(config.env_id), tuple(notes))
    return check_values(made, str(path), drop_nonfinite, from_file=False)


def _check_memory(checkpoint: Checkpoint, seeds: int, spec: EnvSpec, memory_share: float) -> None:
    rows = sum(stop - start for start, stop in map(segment_rows, checkpoint.names("replay_")))
    needed, available = replay_bytes(spec, seeds, rows), int(memory_share * free_memory())
    if needed > available and not spec.observation.stored_as_frames:  # images are rejected for another reason
        raise UserError(
            f"{checkpoint.path}: its replay needs {gibibytes(needed)} of memory, {gibibytes(available)} are available"
        )


def _segments(
    checkpoint: Checkpoint, seeds: int, num_envs: int, observation: ObservationCodec, action: ActionCodec
) -> dict[str, Tensor]:
    names, parts, reached = checkpoint.names("replay_"), [], None
    spec = env_spec(observation, action)
    fields = field_layout(spec)
    if not names:
        rollouts = "rollout" in checkpoint.state["parts"]
        raise invalid_file(
            checkpoint.path, "its run learns from rollouts and has no replay" if rollouts else "its replay is empty"
        )
    for name in names:
        start, stop = segment_rows(name)
        if (reached is not None and start != reached) or start % num_envs or stop % num_envs:
            raise DamagedCheckpoint(f"{checkpoint.path.name} damaged (transitions are missing from its replay)")
        parts.append(checkpoint.tensors(name))
        if "frames" in parts[-1]:
            raise invalid_file(checkpoint.path, "a run on images cannot be read as a dataset")
        layout = {key: ((seeds, stop - start, *row), getattr(torch, dtype)) for key, (row, dtype) in fields.items()}
        check_segment(StoredPart(checkpoint, ReplayPart.name), name, parts[-1], layout, spec)
        reached = stop
    return {name: torch.cat([part[name] for part in parts], 1) for name in parts[0]}


def replay_transitions(
    rows: Mapping[str, Tensor],
    num_envs: int,
    observation: ObservationCodec,
    action: ActionCodec,
    env_id: str,
    notes: tuple[str, ...] = (),
) -> Transitions:
    """Rows (seeds, steps x environments, ...) as the trajectories of each environment in turn, in its units."""
    seeds, count = rows["rewards"].shape
    arrays = {}
    for name, tensor in rows.items():
        by_env = tensor.numpy().reshape(seeds, count // num_envs, num_envs, *tensor.shape[2:]).swapaxes(1, 2)
        arrays[name] = np.ascontiguousarray(by_env).reshape(seeds * count, *tensor.shape[2:])
    arrays["obs"], arrays["next_obs"] = map(observation.to_file, (arrays["obs"], arrays["next_obs"]))
    arrays["actions"] = action.to_env(arrays["actions"])
    # The open episode of an environment does not continue in the rows of the next one.
    last = np.arange(count // num_envs - 1, seeds * count, count // num_envs)
    arrays["truncated"][last] |= ~arrays["terminated"][last]
    space = space_to_dict(observation.space)
    if space["kind"] == "box":
        space["dtype"] = arrays["obs"].dtype.name  # of the replay, which may be less precise
    return Transitions(
        **arrays,
        env_id=env_id,
        observation_space=space,
        action_space=space_to_dict(action.space),
        notes=notes,
    )
