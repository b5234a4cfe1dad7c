"""The rollout as a part of a run: the steps collected so far and the open state of a recurrent policy."""

from __future__ import annotations

from rl_training.checkpoint.parts import PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint
from rl_training.checkpoint.schema import RolloutState
from rl_training.data.rollout import Rollout

FILE = "rollout"


class RolloutPart:
    """Saves and loads a rollout."""

    name = "rollout"

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout

    def state(self, previous: Checkpoint | None) -> PartState:
        tensors = self.rollout.tensors()
        return PartState({"filled": self.rollout.filled}, {FILE: tensors} if tensors else {})

    def check(self, stored: StoredPart) -> None:
        rollout, filled = self.rollout, stored.parse(RolloutState).filled
        if filled >= rollout.steps:
            raise stored.invalid(f"filled must be below rollout_steps ({rollout.steps}), got {filled}")
        expected = rollout.layout_of(filled)
        if not expected:
            return
        found = stored.tensors(f"{FILE}.safetensors")
        stored.check_tensors(f"{FILE}.safetensors", found, expected)
        if filled and not rollout.spec.action.contains(found["actions"]):
            choices = rollout.spec.action.choices or rollout.spec.action.multi_choices
            raise stored.invalid(f"{FILE}.safetensors: actions must be below {choices}")

    def load(self, stored: StoredPart) -> None:
        filled = stored.parse(RolloutState).filled
        saved = bool(self.rollout.layout_of(filled))
        self.rollout.load(filled, stored.tensors(f"{FILE}.safetensors") if saved else {})
