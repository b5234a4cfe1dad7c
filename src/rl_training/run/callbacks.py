"""Callbacks: hooks that are called during a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rl_training.core.checks import UserError, shown

if TYPE_CHECKING:
    from rl_training.run.session import Session


class Callback:
    """The base class of callbacks. A hook that returns False stops the run after the current step.

    A hook that raises ends the run as failed. Either way the run can be resumed.
    """

    def on_start(self, session: Session) -> bool | None:
        """Called before the first step, also of a resumed run."""
        return None

    def on_step(self, session: Session) -> bool | None:
        """Called after every step: before the row, the evaluation and the checkpoint that are due at it."""
        return None

    def on_log(self, session: Session, rows: Sequence[dict[str, Any]]) -> bool | None:
        """Called with the next rows of metrics, one per seed; numbers added to them reach every writer."""
        return None

    def on_evaluation(self, session: Session, metrics: dict[str, Any]) -> bool | None:
        """Called after an evaluation during training, with a summary over all seeds."""
        return None

    def on_checkpoint(self, session: Session, path: Path) -> bool | None:
        """Called after a checkpoint was saved at `path`."""
        return None

    def on_end(self, session: Session) -> bool | None:
        """Called when the run is finished or stopped, after its last checkpoint and agents were saved."""
        return None

    def state(self) -> dict[str, Any] | None:
        """Plain values that a resumed run needs, saved in every checkpoint; None: nothing."""
        return None

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a saved state; called before `on_start` of a resumed run."""


StepFunction: TypeAlias = Callable[["Session"], Any]
# The callbacks argument: one or several; a function is called after every step.
Callbacks: TypeAlias = Callback | StepFunction | Sequence[Callback | StepFunction]


class StepCallback(Callback):
    """A function as the hook after every step."""

    def __init__(self, function: StepFunction) -> None:
        self.function = function

    def on_step(self, session: Session) -> bool | None:
        return self.function(session)  # type: ignore[no-any-return]


def as_callbacks(given: Callbacks | None) -> tuple[Callback, ...]:
    """The callbacks argument as a tuple of callbacks; anything else is rejected."""
    if given is None:
        return ()
    if isinstance(given, (list, tuple)):
        return tuple(_callback(one, f"callbacks[{index}]") for index, one in enumerate(given))
    return (_callback(given, "callbacks"),)


def _callback(given: Any, where: str) -> Callback:
    if isinstance(given, Callback):
        return given
    if isinstance(given, type):
        raise UserError(f"{where} must be an instance, got the class {given.__name__}; pass {given.__name__}()")
    if not callable(given):
        several = " or a list of them" if where == "callbacks" else ""
        raise UserError(f"{where} must be a Callback, a function of the session{several}, got {shown(given)}")
    if inspect.iscoroutinefunction(given):
        raise UserError(f"{where} must be a plain function, {_name(given)} is a coroutine")
    try:
        inspect.signature(given).bind(None)
    except TypeError as error:
        signature = inspect.signature(given)
        raise UserError(
            f"{where} must be a function of one argument, the session, {_name(given)} takes {signature}"
        ) from error
    except ValueError:  # a built-in without a signature
        pass
    return StepCallback(given)


def callback_name(callback: Callback) -> str:
    return _name(callback.function) if isinstance(callback, StepCallback) else type(callback).__name__


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
