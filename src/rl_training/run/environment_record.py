"""How a run's environment is brought back: decided once, when the run begins, and kept in run.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rl_training.checkpoint.read import Checkpoint
from rl_training.envs.host.factory import Restore
from rl_training.run.inputs import RunInputs

NOT_REPLAYABLE = "the environment does not repeat itself for the same seed and actions, so a resumed run will differ"
REBUILT = "carries state from one episode to the next, so it is made anew for every episode"
NOT_REBUILT = "the environment carries state from one episode to the next, and was not made anew for each one so far"


@dataclass(frozen=True)
class EnvironmentEntry:
    """`environment` in run.json: how it is brought back, decided when the run began."""

    env_id: str
    restore: Restore | None = None
    rebuild_ms: float | None = None


def environment_entries(inputs: RunInputs, before: Checkpoint | None = None) -> dict[str, Any]:
    """What the run's record keeps of the check before training; `before`: where a run without that check stood."""
    entries: dict[str, Any] = {}
    source, found, trains = inputs.source, inputs.conformance, inputs.settings.uses_environment
    if found is not None:
        entries["environment"] = asdict(EnvironmentEntry(source.env_id, found.restore, found.rebuild_ms))
    if trains and source.restore == "inexact":
        return {**entries, "resume": "inexact", "resume_note": NOT_REPLAYABLE}
    stood = before is not None and before.state["parts"].get("replay", {}).get("added", 0) > 0
    if trains and found is not None and stood and source.restore == "rebuilt":
        return {**entries, "resume": "inexact", "resume_note": NOT_REBUILT}
    return entries
