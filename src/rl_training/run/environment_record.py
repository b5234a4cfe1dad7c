"""How a run's environment is brought back: decided once, when the run begins, and kept in run.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rl_training.checkpoint.read import Checkpoint
from rl_training.checkpoint.schema import unfit
from rl_training.config.fields import parse
from rl_training.core.checks import UserError
from rl_training.data.datasets.prepare import OfflineData
from rl_training.envs.host.conformance import Conformance, check_environment
from rl_training.envs.host.factory import EnvSource, Restore
from rl_training.files.run_directory import RunRecord

NOT_REPLAYABLE = "the environment does not repeat itself for the same seed and actions, so a resumed run will differ"
REBUILT = "carries state from one episode to the next, so it is made anew for every episode"
NOT_REBUILT = "the environment carries state from one episode to the next, and was not made anew for each one so far"


@dataclass(frozen=True)
class EnvironmentEntry:
    """`environment` in run.json: how it is brought back, decided when the run began."""

    env_id: str
    restore: Restore | None = None
    rebuild_ms: float | None = None


def environment_entries(
    source: EnvSource, found: Conformance | None, plays: bool, before: Checkpoint | None = None
) -> dict[str, Any]:
    """What the run's record keeps of the check before training; `before`: where a run without that check stood."""
    entries: dict[str, Any] = {}
    if found is not None:
        entries["environment"] = asdict(EnvironmentEntry(source.env_id, found.restore, found.rebuild_ms))
    if plays and source.restore == "inexact":
        return {**entries, "resume": "inexact", "resume_note": NOT_REPLAYABLE}
    late = found is not None and before is not None and before.state["added"] > 0
    if plays and late and source.restore == "rebuilt":
        return {**entries, "resume": "inexact", "resume_note": NOT_REBUILT}
    return entries


def decide(source: EnvSource, offline: OfflineData | None) -> Conformance | None:
    """The check before training; None if the run has decided before, or plays nothing but evaluations."""
    if source.restore is not None:
        return None
    return check_environment(source) if offline is None else offline.environment


def recorded_restore(run_dir: Path, env_id: str) -> Restore | None:
    """How the run's environment is brought back; None if that was never decided, or for another environment."""
    record = RunRecord.read(run_dir)
    if "environment" not in record.values:
        return None
    try:
        entry = parse(EnvironmentEntry, record.values["environment"])
    except UserError as error:
        raise unfit(record.path, error) from error
    return entry.restore if entry.env_id == env_id else None
