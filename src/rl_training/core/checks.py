"""Errors for invalid input, and helpers that write their messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

_MAX_SHOWN_VALUE = 80
_MAX_LINE = 300


class UserError(ValueError):
    """Invalid input: reported as one line without a traceback; `code` follows, as it is, to be copied."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, field_name: str | None = None, code: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *code]))
        self.message, self.field_name, self.code = message, field_name, tuple(code)


class Note(UserWarning):
    """A warning that the command line shows as one line."""


@dataclass(frozen=True)
class Problem:
    """One error in a config, and the path of keys to it."""

    path: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return self.message


class ConfigError(UserError):
    """All problems of a config, one line each."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))
        # Unpickling calls the class with `args`, so they must be the arguments of __init__, not the joined text.
        self.args = (self.problems,)

    def __str__(self) -> str:
        return "\n".join(map(str, self.problems))


def nearest(word: str, options: Iterable[str]) -> str | None:
    """The option whose spelling is closest to `word`, ignoring case, or None when none is close."""
    by_lowercase = {option.lower(): option for option in options}
    matches = difflib.get_close_matches(word[:_MAX_SHOWN_VALUE].lower(), by_lowercase, n=1)
    return by_lowercase[matches[0]] if matches else None


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """The end of an error message: `; did you mean x?`, or an empty string."""
    option = nearest(word, options)
    return f"; did you mean {option}?" if option else ""


def require(ok: bool, name: str, must: str) -> None:
    """Reject a value: `require(tau <= 1, "tau", "<= 1")` raises `tau must be <= 1`."""
    if not ok:
        raise UserError(f"{name} must be {must}", field_name=name)


def shown(value: object) -> str:
    """`repr` for an error message: one short line for any value."""
    try:
        text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value[: _MAX_SHOWN_VALUE + 1])
    except Exception:  # e.g. integers beyond Python's digit limit, cyclic or half-built objects
        return f"<{type(value).__name__}>"
    return text if len(text) <= _MAX_SHOWN_VALUE else text[: _MAX_SHOWN_VALUE - 3] + "..."


def one_line(text: object) -> str:
    """Text from a file or another library, for a message: one line, no control characters."""
    line = "".join(char if char.isprintable() else " " for char in str(text)[: 4 * _MAX_LINE])
    line = " ".join(line.split())
    return line if len(line) <= _MAX_LINE else line[: _MAX_LINE - 3] + "..."
