"""Hooks into a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.runtime.session import Session


class Callback:
    """Override what you need. A hook that returns False stops the run after the current step; it can be resumed."""

    def on_start(self, session: Session) -> bool | None:
        return None

    def on_step(self, session: Session) -> bool | None:
        return None

    def on_evaluation(self, session: Session, metrics: dict[str, Any]) -> bool | None:
        return None

    def on_checkpoint(self, session: Session, path: Path) -> bool | None:
        return None

    def on_end(self, session: Session) -> bool | None:
        return None


Callbacks = Sequence[Callback]
