"""How a run's environment is restored, and whether its action masks are used: decided once, when the run begins."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rl_training.checkpoint.read import Checkpoint
from rl_training.core.checks import one_line
from rl_training.envs.host.factory import Restore
from rl_training.run.inputs import RunInputs

NOT_REPLAYABLE = "the environment does not repeat itself for the same seed and actions, so a resumed run will differ"
REBUILT = "carries state from one episode to the next, so a new copy is made for every episode"
NOT_REBUILT = "the environment carries state from one episode to the next, and no new copy was made for each one so far"


@dataclass(frozen=True)
class EnvironmentEntry:
    """`environment` in run.json: how the environment is restored, decided when the run began, and its masks."""

    env_id: str
    restore: Restore | None = None
    rebuild_ms: float | None = None
    masked: bool = False  # whether its action masks are part of its observations


def environment_entries(inputs: RunInputs, resumed: Checkpoint | None = None) -> dict[str, Any]:
    """The entries of the run's record about its environment; `resumed`: the checkpoint of a resumed run."""
    entries: dict[str, Any] = {}
    source, found, trains = inputs.source, inputs.conformance, inputs.settings.uses_environment
    if found is not None:
        entry = EnvironmentEntry(source.env_id, found.restore, found.rebuild_ms, source.masked)
        entries["environment"] = asdict(entry)
    if trains and source.restore == "inexact":
        return {**entries, "resume": "inexact", "resume_note": NOT_REPLAYABLE}
    has_replay = resumed is not None and resumed.state["parts"].get("replay", {}).get("added", 0) > 0
    before = resumed.state.get("environment", {}).get("env_id", source.env_id) if resumed is not None else source.env_id
    if trains and has_replay and before != source.env_id:
        note = f"its environment has changed: {one_line(before)} -> {source.env_id}"
        return {**entries, "resume": "inexact", "resume_note": note}
    if trains and found is not None and has_replay and source.restore == "rebuilt":
        return {**entries, "resume": "inexact", "resume_note": NOT_REBUILT}
    return entries
