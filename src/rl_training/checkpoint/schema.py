"""What every checkpoint holds besides the state of its parts, and where checkpoints are found."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.checkpoint.read import Checkpoint, load_checkpoint, newest_checkpoint
from rl_training.config.fields import at_least, parse, setting
from rl_training.config.train_config import config_from_dict
from rl_training.config.yaml_loading import plain_values
from rl_training.core.checks import ConfigError, UserError, one_line

LEARNER = "learner.safetensors"


@dataclass(frozen=True)
class CheckpointState:
    """`state.json`. More may stand there; this must."""

    config: dict[str, Any]
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    parts: dict[str, dict[str, Any]]
    step: int = setting(must=at_least(0))


def check_state(checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint, its state of the right types, or a UserError of one line."""
    try:
        state = parse_known(CheckpointState, checkpoint.state)
        config_from_dict(state.config, allow_module_env=True)
    except UserError as error:
        raise invalid_file(checkpoint.path, error) from error
    if state.step != checkpoint.step:
        raise invalid_file(checkpoint.path, f"step is {state.step}, the manifest's is {checkpoint.step}")
    return dataclasses.replace(checkpoint, state={**checkpoint.state, **plain_values(dataclasses.asdict(state))})


def parse_known(cls: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass from those of the values that it has fields for."""
    known = {field.name for field in dataclasses.fields(cls)}
    return parse(cls, {name: value for name, value in values.items() if name in known})


def invalid_file(path: Path, reason: object) -> UserError:
    """The error that names a file and what is wrong with it, in one line."""
    lines = "; ".join(map(str, reason.problems)) if isinstance(reason, ConfigError) else reason
    return UserError(f"{path}: {one_line(lines)}")


def find_checkpoint(path: Path, only: tuple[str, ...] | None = None) -> tuple[Checkpoint, list[str]]:
    """A checkpoint directory itself, or the newest intact one of a run directory (and what was skipped).

    With `only`, those files alone are read and verified: a policy does not need the replay behind it.
    """
    if (path / "manifest.json").exists() or path.name.startswith("step_"):
        return check_state(load_checkpoint(path, only)), []
    root = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    if not root.is_dir():
        raise UserError(f"{path}: no such run or checkpoint")
    checkpoint, skipped = newest_checkpoint(root, only)
    return check_state(checkpoint), skipped
