"""Calls the callbacks of a run: every hook by name, their states, and the name of one that raises."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.config.yaml_loading import plain_values
from rl_training.core.checks import UserError, shown
from rl_training.files.run_directory import RunRecord
from rl_training.run.callbacks import Callback, callback_name
from rl_training.run.logged_values import Row, as_number

if TYPE_CHECKING:
    from rl_training.run.session import Session


class Hooks:
    """The callbacks of a run by name; a second one of the same name has a number."""

    def __init__(self, callbacks: Sequence[Callback], record: RunRecord) -> None:
        self.record = record
        self.callbacks: dict[str, Callback] = {}
        seen: Counter[str] = Counter()
        for callback in callbacks:
            name = callback_name(callback)
            seen[name] += 1
            self.callbacks[name if seen[name] == 1 else f"{name}-{seen[name]}"] = callback
        self._by_hook: dict[str, list[Callback]] = {}
        self.unclaimed: dict[str, dict[str, Any]] = {}  # saved states of callbacks that are not there

    @contextmanager
    def _named(self, callback: Callback, hook: str) -> Iterator[None]:
        """While a hook runs, the record has its name: an exception in it is reported as the callback's."""
        self.record.hook = f"{callback_name(callback)}.{hook}"
        yield
        self.record.hook = None  # not after an exception

    def call(self, hook: str, session: Session, *arguments: Any) -> bool:
        """Call a hook of every callback. False if one of them returned False."""
        goes_on = True
        for callback in self._with(hook):
            with self._named(callback, hook):
                answer = getattr(callback, hook)(session, *arguments)
                if hook == "on_log":
                    check_rows(arguments[0], session)
            goes_on &= not (isinstance(answer, (bool, np.bool_)) and not answer)
        return goes_on

    def _with(self, hook: str) -> list[Callback]:
        """The callbacks that have a hook of their own, found once: most have none for every step."""
        if hook not in self._by_hook:
            given = self.callbacks.values()
            empty = getattr(Callback, hook)
            self._by_hook[hook] = [one for one in given if getattr(getattr(one, hook), "__func__", None) is not empty]
        return self._by_hook[hook]

    # --- state -----------------------------------------------------------------------------------------------------
    def states(self) -> dict[str, dict[str, Any]]:
        """The states of the callbacks that have one, as plain values by name."""
        found = dict(self.unclaimed)
        for name, callback in self.callbacks.items():
            with self._named(callback, "state"):
                # A callback may have an attribute of that name, from before there was the hook.
                state = callback.state() if callable(callback.state) else None
                if state is not None:
                    found[name] = _plain(state)
        return found

    def load(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Give each callback its saved state; those of absent callbacks are saved again."""
        self.unclaimed = {name: state for name, state in states.items() if name not in self.callbacks}
        for name, callback in self.callbacks.items():
            if name in states:
                with self._named(callback, "load"):
                    callback.load(states[name])

    def notices(self) -> list[str]:
        """A line about callbacks of the checkpoint that were not passed to the resume."""
        if not self.unclaimed:
            return []
        names = ", ".join(self.unclaimed)
        return [f"callbacks: {names} had a state in the checkpoint and {_is(self.unclaimed)} not passed again"]


def _is(names: Mapping[str, Any]) -> str:
    return "is" if len(names) == 1 else "are"


def _plain(state: Any) -> dict[str, Any]:
    try:
        if not isinstance(state, dict):
            raise TypeError
        plain = plain_values(state)
        json.dumps(plain, allow_nan=False)
        return plain
    except (TypeError, ValueError) as error:
        must = "a dictionary with text keys of numbers, text, true, false, None, or lists and such dictionaries of them"
        raise UserError(f"the state of a callback must be {must}, got {shown(state)}") from error


def check_rows(rows: Sequence[Row], session: Session) -> None:
    """Convert what a callback added to metric rows; reject values that are not numbers or text."""
    for row, seed in zip(rows, session.seeds, strict=True):
        if row.get("step") != session.step or row.get("seed") != seed:
            raise UserError("a callback may add values to a row, not change its step or seed")
        for name, value in row.items():
            if not isinstance(name, str):
                raise UserError(f"the name of a metric must be text, got {shown(name)}")
            if value is not None and not isinstance(value, (bool, int, float, str)):
                row[name] = as_number(name, value)
