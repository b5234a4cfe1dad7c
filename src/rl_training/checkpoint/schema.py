"""What a checkpoint must hold, checked in one place: its digests say that it is whole, not that it makes sense."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import Checkpoint
from rl_training.config.fields import at_least, parse, setting
from rl_training.config.train_config import config_from_dict
from rl_training.config.yaml_loading import plain_values
from rl_training.core.checks import ConfigError, UserError, one_line
from rl_training.core.specs import EnvSpec
from rl_training.data.replay.priorities import LARGEST
from rl_training.engine.phases import Source
from rl_training.envs.host.vector import SeededEnvs

LEARNER = "learner.safetensors"


@dataclass(frozen=True)
class RunState:
    """`state.json`. More may stand there; this must."""

    config: dict[str, Any]
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    best: tuple[float | None, ...]
    failed: dict[str, dict[str, Any]]
    last_evaluation: tuple[tuple[tuple[float, ...], tuple[int, ...]], ...]
    offsets: dict[str, int]
    episode_statistics: dict[str, Any]
    step: int = setting(must=at_least(0))
    since_training: int = setting(must=at_least(0))
    horizon: int = setting(must=at_least(1))
    elapsed: float = setting(must=at_least(0))
    added: int = setting(must=at_least(0))
    episodes: tuple[int, ...] = setting(must=at_least(0))
    last_evaluation_step: int = setting(must=at_least(-1))
    evaluation_due: bool = False
    unlogged: tuple[int, ...] = setting((), at_least(0))


@dataclass(frozen=True)
class EpisodeState:
    open_returns: tuple[float, ...]
    open_lengths: tuple[int, ...]
    returns: tuple[tuple[float, ...], ...]
    lengths: tuple[tuple[int, ...], ...]
    finished: tuple[int, ...]


def check_state(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint, its state of the right types and sizes, or a UserError of one line."""
    try:
        state = _parse(RunState, checkpoint.state)
        episodes = _parse(EpisodeState, state.episode_statistics)
        config = config_from_dict(state.config, allow_module_env=True)
        settings = parse(learner_class(config.algo).settings_type, config.algo_kwargs)
    except UserError as error:
        raise unfit(checkpoint.path, error) from error
    seeds, rows = len(config.seed_list), len(config.seed_list) * config.num_envs
    lengths = {
        "episodes": (len(state.episodes), rows),
        "open_returns": (len(episodes.open_returns), rows),
        "open_lengths": (len(episodes.open_lengths), rows),
        "returns": (len(episodes.returns), seeds),
        "lengths": (len(episodes.lengths), seeds),
        "finished": (len(episodes.finished), seeds),
        "best": (len(state.best), seeds),
        "last_evaluation": (len(state.last_evaluation) or seeds, seeds),
    }
    for name, (found, expected) in lengths.items():
        if found != expected:
            raise unfit(checkpoint.path, f"{name} has {found} entries, {expected} are expected")
    if state.since_training >= settings.train_frequency:  # a remainder: more would be made up for at once
        raise unfit(checkpoint.path, f"since_training must be below train_frequency ({settings.train_frequency})")
    if state.step != checkpoint.step:
        raise unfit(checkpoint.path, f"step is {state.step}, the manifest's is {checkpoint.step}")
    if any(not returns or len(returns) != len(lengths) for returns, lengths in state.last_evaluation):
        raise unfit(checkpoint.path, "last_evaluation has an entry without episodes")
    if any(name not in state.offsets or state.offsets[name] < 0 for name in ("metrics", "evaluations")):
        raise unfit(checkpoint.path, "offsets must be >= 0 for metrics and evaluations")
    if any(not isinstance(entry.get("update"), int) for entry in state.failed.values()):
        raise unfit(checkpoint.path, "failed must tell the update of each seed")
    checked = {**dataclasses.asdict(state), "episode_statistics": dataclasses.asdict(episodes)}
    return dataclasses.replace(checkpoint, state={**checkpoint.state, **plain_values(checked)})


def _parse(cls: Any, values: Mapping[str, Any]) -> Any:
    known = {field.name for field in dataclasses.fields(cls)}
    return parse(cls, {name: value for name, value in values.items() if name in known})


def unfit(path: Path, reason: object) -> UserError:
    lines = "; ".join(map(str, reason.problems)) if isinstance(reason, ConfigError) else reason
    return UserError(f"{path}: {one_line(lines)}")


def load_learner(checkpoint: Checkpoint, learner: Learner) -> None:
    try:
        learner.load_state_dict(checkpoint.tensors(LEARNER))
    except (KeyError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise unfit(checkpoint.path, f"{LEARNER}: {error}") from error


def check_metrics(checkpoint: Checkpoint, learner: Learner, source: Source) -> None:
    try:
        learner.check_metrics(source)
    except ValueError as error:
        raise unfit(checkpoint.path, f"{LEARNER}: {error}") from error


def check_rows(
    checkpoint: Checkpoint,
    name: str,
    rows: Mapping[str, Tensor],
    layout: Mapping[str, tuple[tuple[int, ...], torch.dtype]],
    spec: EnvSpec,
) -> None:
    """A segment of the replay against what it should hold, as `layout` tells, and its environment's actions."""
    for field, (row, dtype) in layout.items():
        _check_tensor(checkpoint, name, rows, field, row, dtype)
    if not spec.action.contains(rows["actions"]):
        raise unfit(checkpoint.path, f"{name}: actions must be below {spec.action.size}")


def check_priorities(checkpoint: Checkpoint, stored: Mapping[str, Tensor], seeds: int, size: int) -> None:
    name = "priorities.safetensors"
    for key, columns, least in (("priorities", size, 0), ("highest", 1, 1)):
        _check_tensor(checkpoint, name, stored, key, (seeds, columns), torch.int64)
        if not bool(((stored[key] >= least) & (stored[key] <= LARGEST)).all()):
            raise unfit(checkpoint.path, f"{name}: {key} must be from {least} to {LARGEST}")
    if not bool(stored["priorities"].any(1).all()) and size:
        raise unfit(checkpoint.path, f"{name}: a seed without any priority above 0 cannot draw a batch")


def check_envs(checkpoint: Checkpoint, stored: Mapping[str, Tensor], envs: SeededEnvs) -> None:
    """The open episodes against the environments they go on in."""
    name, space = "envs.safetensors", envs.action.space
    _check_tensor(checkpoint, name, stored, "obs", envs.obs.shape, torch.from_numpy(envs.obs).dtype)
    for row in range(envs.size):
        state, actions = stored.get(f"state_{row}"), stored.get(f"actions_{row}")
        if state is None or state.dtype != torch.uint8 or state.dim() != 1:
            raise unfit(checkpoint.path, f"{name}: state_{row} must be bytes")
        if actions is None or not actions.dim():
            raise unfit(checkpoint.path, f"{name}: actions_{row} is missing")
        if tuple(actions.shape) == (0,):  # the episode has just begun
            continue
        taken = actions.numpy()
        fits = taken.shape == (len(taken), *(space.shape or ()))
        if not fits or not np.can_cast(taken.dtype, space.dtype or taken.dtype):
            raise unfit(checkpoint.path, f"{name}: actions_{row} are not actions of {space}")
        if not envs.action.contains(taken):
            raise unfit(checkpoint.path, f"{name}: actions_{row} are not actions of {space}")


def _check_tensor(
    checkpoint: Checkpoint, name: str, found: Mapping[str, Tensor], key: str, shape: Any, dtype: torch.dtype
) -> None:
    tensor = found.get(key)
    if tensor is None:
        raise unfit(checkpoint.path, f"{name}: {key} is missing")
    if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype:
        have, want = f"{tensor.dtype} {tuple(tensor.shape)}", f"{dtype} {tuple(shape)}"
        raise unfit(checkpoint.path, f"{name}: {key} is {have}, expected {want}")
