"""Mistakes in the input: the errors that report them, and the words that help to mend them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

_LONGEST_SHOWN_VALUE = 80
_LONGEST_LINE = 300


class UserError(ValueError):
    """A mistake in the input: shown as one line without a traceback."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, field_name: str | None = None) -> None:
        super().__init__(message)
        self.field_name = field_name


class Note(UserWarning):
    """Something the user should know: shown as one line by the command line."""


@dataclass(frozen=True)
class Problem:
    """One mistake in a configuration, and the path of keys that leads to it."""

    path: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return self.message


class ConfigError(UserError):
    """Every problem of a configuration at once, one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))
        # Unpickling calls the class with `args`, so they must be what __init__ takes, not the joined text.
        self.args = (self.problems,)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def nearest(word: str, options: Iterable[str]) -> str | None:
    """The option spelled most like `word`, whatever the case, or None when nothing comes close."""
    by_lowercase = {option.lower(): option for option in options}
    matches = difflib.get_close_matches(word[:_LONGEST_SHOWN_VALUE].lower(), by_lowercase, n=1)
    return by_lowercase[matches[0]] if matches else None


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """The end of an error message: `; did you mean x?`, or nothing."""
    option = nearest(word, options)
    return f"; did you mean {option}?" if option else ""


def require(ok: bool, name: str, must: str) -> None:
    """Refuse a value: `require(tau <= 1, "tau", "<= 1")` reads `tau must be <= 1`."""
    if not ok:
        raise UserError(f"{name} must be {must}", field_name=name)


def shown(value: object) -> str:
    """`repr` for an error message: always one short line, whatever the value."""
    try:
        text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value[: _LONGEST_SHOWN_VALUE + 1])
    except Exception:  # e.g. integers beyond Python's digit limit, cyclic or half-built objects
        return f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_SHOWN_VALUE else text[: _LONGEST_SHOWN_VALUE - 3] + "..."


def one_line(text: object) -> str:
    """Words that came from a file or another library, fit for a message: one line, no control characters."""
    line = "".join(char if char.isprintable() else " " for char in str(text)[: 4 * _LONGEST_LINE])
    line = " ".join(line.split())
    return line if len(line) <= _LONGEST_LINE else line[: _LONGEST_LINE - 3] + "..."
