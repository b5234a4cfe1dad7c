"""The schema of a checkpoint's `state.json`, and the search for checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.checkpoint.read import Checkpoint, load_checkpoint, newest_checkpoint
from rl_training.config.fields import at_least, parse, setting
from rl_training.config.train_config import TrainConfig, config_from_dict
from rl_training.config.yaml_loading import plain_values
from rl_training.core.checks import ConfigError, UserError, one_line

LEARNER = "learner.safetensors"
LOGS = ("metrics", "evaluations")  # log files whose lengths a checkpoint stores


@dataclass(frozen=True)
class CheckpointState:
    """The required values of `state.json`."""

    config: dict[str, Any]
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    parts: dict[str, dict[str, Any]]  # the values of each part by its name
    step: int = setting(must=at_least(0))


# --- the values of the parts ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class ClockState:
    """Counters of the loop."""

    step: int = setting(must=at_least(0))
    since_training: int = setting(must=at_least(0))
    horizon: int = setting(must=at_least(1))


@dataclass(frozen=True)
class ReplayState:
    """Counters of the replay; its transitions are in segment files."""

    added: int = setting(must=at_least(0))  # transitions ever added, per seed
    capacity: int = setting(must=at_least(1))


@dataclass(frozen=True)
class RolloutState:
    """The steps of each environment that a rollout holds."""

    filled: int = setting(must=at_least(0))


@dataclass(frozen=True)
class EnvironmentsState:
    """Episode numbers and statistics of host environments."""

    statistics: dict[str, Any]
    episodes: tuple[int, ...] = setting(must=at_least(0))
    unlogged: tuple[int, ...] = setting((), at_least(0))
    changes: dict[str, Any] = field(default_factory=dict)  # of the environments during training
    row_changes: tuple[dict[str, Any], ...] = ()  # in the open episode of each environment; empty: none


@dataclass(frozen=True)
class StatisticsState:
    """Episode statistics of host environments."""

    open_returns: tuple[float, ...]
    open_lengths: tuple[int, ...]
    returns: tuple[tuple[float, ...], ...]
    lengths: tuple[tuple[int, ...], ...]
    finished: tuple[int, ...]
    infos: dict[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)  # by name, then by seed


@dataclass(frozen=True)
class SessionState:
    """Best and last evaluations, failed seeds, lengths of the log files, elapsed time."""

    best: tuple[float | None, ...]
    failed: dict[str, dict[str, Any]]
    last_evaluation: tuple[tuple[tuple[float, ...], tuple[int, ...]], ...]
    offsets: dict[str, int]
    elapsed: float = setting(must=at_least(0))
    last_evaluation_step: int = setting(must=at_least(-1))
    evaluation_due: bool = False
    last_infos: tuple[dict[str, tuple[float, ...]], ...] = ()  # of the last evaluation
    callbacks: dict[str, dict[str, Any]] = field(default_factory=dict)  # the states of callbacks by name
    logged: dict[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)  # for the next row


PARTS = {
    "clock": ClockState,
    "replay": ReplayState,
    "rollout": RolloutState,
    "environments": EnvironmentsState,
    "session": SessionState,
}


# --- checks: the digests of a checkpoint prove that it is complete, not that its values are valid ---------------------
def check_state(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with a state of checked types and sizes, or a UserError of one line."""
    try:
        state = parse_known(CheckpointState, checkpoint.state)
        config = config_from_dict(state.config, allow_module_env=True)
        parts = {name: parse_known(cls, state.parts[name]) for name, cls in PARTS.items() if name in state.parts}
        problem = _problem(checkpoint.step, state.step, parts, config)
    except UserError as error:
        raise invalid_file(checkpoint.path, error) from error
    if problem is not None:
        raise invalid_file(checkpoint.path, problem)
    values = {**state.parts, **{name: dataclasses.asdict(one) for name, one in parts.items()}}
    checked = {**dataclasses.asdict(state), "parts": values}
    return dataclasses.replace(checkpoint, state={**checkpoint.state, **plain_values(checked)})


def _problem(manifest_step: int, step: int, parts: Mapping[str, Any], config: TrainConfig) -> str | None:
    """The first problem of values that have the right types, or None."""
    clock, environments, session = (parts.get(name) for name in ("clock", "environments", "session"))
    for found in (step, clock.step if clock is not None else step):
        if found != manifest_step:
            return f"step is {found}, the manifest's is {manifest_step}"
    if environments is not None:
        problem = _environments_problem(environments, config)
        if problem is not None:
            return problem
    replay = parts.get("replay")
    if replay is not None and replay.capacity % config.num_envs:
        return f"capacity must be a multiple of num_envs ({config.num_envs}), got {replay.capacity}"
    return _session_problem(session, config) if session is not None else None


def _environments_problem(state: EnvironmentsState, config: TrainConfig) -> str | None:
    statistics: StatisticsState = parse_known(StatisticsState, state.statistics)
    seeds, rows = len(config.seed_list), len(config.seed_list) * config.num_envs
    counts = {
        "episodes": (len(state.episodes), rows),
        "open_returns": (len(statistics.open_returns), rows),
        "open_lengths": (len(statistics.open_lengths), rows),
        "returns": (len(statistics.returns), seeds),
        "lengths": (len(statistics.lengths), seeds),
        "finished": (len(statistics.finished), seeds),
        "row_changes": (len(state.row_changes) or rows, rows),
        **{f"infos.{name}": (len(windows), seeds) for name, windows in statistics.infos.items()},
    }
    return _count_problem(counts)


def _session_problem(state: SessionState, config: TrainConfig) -> str | None:
    seeds = len(config.seed_list)
    problem = _count_problem(
        {"best": (len(state.best), seeds), "last_evaluation": (len(state.last_evaluation) or seeds, seeds)}
    )
    if problem is not None:
        return problem
    if state.last_infos and len(state.last_infos) != len(state.last_evaluation):
        return f"last_infos has {len(state.last_infos)} entries, {len(state.last_evaluation)} are expected"
    if any(not returns or len(returns) != len(lengths) for returns, lengths in state.last_evaluation):
        return "last_evaluation has an entry without episodes"
    if set(state.offsets) != set(LOGS) or min(state.offsets.values()) < 0:
        return "offsets must be >= 0 for metrics and evaluations"
    if any(not isinstance(entry.get("update"), int) for entry in state.failed.values()):
        return "failed must name the update of each seed"
    return None


def _count_problem(counts: Mapping[str, tuple[int, int]]) -> str | None:
    for name, (found, expected) in counts.items():
        if found != expected:
            return f"{name} has {found} entries, {expected} are expected"
    return None


def parse_known(cls: Any, values: Mapping[str, Any]) -> Any:
    """A dataclass from the values that it has fields for; others are ignored."""
    known = {one.name for one in dataclasses.fields(cls)}
    return parse(cls, {name: value for name, value in values.items() if name in known})


def invalid_file(path: Path, reason: object) -> UserError:
    """The error for an invalid file: its path and the reason, in one line."""
    lines = "; ".join(map(str, reason.problems)) if isinstance(reason, ConfigError) else reason
    return UserError(f"{path}: {one_line(lines)}")


def find_checkpoint(path: Path, only: tuple[str, ...] | None = None) -> tuple[Checkpoint, list[str]]:
    """The checkpoint at `path`, or the newest intact one of a run directory, and a line for each skipped one.

    With `only`, just those files are verified: a policy does not need the replay.
    """
    if (path / "manifest.json").exists() or path.name.startswith("step_"):
        return check_state(load_checkpoint(path, only)), []
    root = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    if not root.is_dir():
        raise UserError(f"{path}: no such run or checkpoint")
    checkpoint, skipped = newest_checkpoint(root, only)
    return check_state(checkpoint), skipped
