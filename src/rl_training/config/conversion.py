"""Conversion of plain values to the annotated types of settings: numbers, tuples, unions, literals and sections."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, Union

from rl_training.core.checks import ConfigError, Problem

_ONE = {int: "an integer", float: "a number", bool: "true or false", str: "a string", Path: "a path"}
_MANY = {int: "integers", float: "numbers", bool: "booleans", str: "strings", Path: "paths"}
_MAX_INT = 2**63 - 1
_COMMON = frozenset((bool, float, int, str, types.NoneType))


class InvalidValueError(Exception):
    """An invalid value; its text is what was expected, or the finished message."""

    def problems(self, path: tuple[str, ...]) -> list[Problem]:
        return [Problem(path, str(self))]


class InvalidSectionError(InvalidValueError):
    """A section (a dataclass within a dataclass) with invalid values."""

    def __init__(self, error: ConfigError) -> None:
        super().__init__(str(error))
        self.inner = error.problems

    def problems(self, path: tuple[str, ...]) -> list[Problem]:
        name = path[-1]
        return [
            Problem(path + one.path, f"{name}{'.' if one.message.startswith(one.path[:1]) else ': '}{one.message}")
            for one in self.inner
        ]


def convert(value: Any, hint: Any) -> Any:
    """`value` converted to the annotated type, or `InvalidValueError` with what was expected."""
    if type(value) is hint and _is_plain(value):  # most values
        return value
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if origin in (Union, types.UnionType):
        return _convert_union(value, hint)
    if origin is tuple:
        return _convert_tuple(value, hint)
    if dataclasses.is_dataclass(hint):
        return _convert_section(value, typing.cast(type[Any], hint))
    # A class or function: from Python itself, or the name under which a file records it.
    if origin is Callable and (callable(value) or (isinstance(value, str) and ":" in value)):
        return value
    if hint is dict or origin is dict:
        return _convert_dict(value, hint)
    if hint is int and is_number(value) and is_finite(value) and value == int(value):
        if abs(value) > _MAX_INT:
            raise InvalidValueError("an integer of at most 64 bits")
        return int(value)
    if hint is float and is_number(value):
        if not is_finite(value):
            raise InvalidValueError("a finite number")
        return float(value)
    if hint is Path and isinstance(value, (str, Path)) and str(value) and "\0" not in str(value):
        return Path(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if hint is types.NoneType and value is None:
        return value
    if is_literal(hint) and any(type(value) is type(option) and value == option for option in typing.get_args(hint)):
        return value
    raise InvalidValueError(describe(hint))


def _is_plain(value: Any) -> bool:
    """Whether a value of Python's own types needs no conversion: a string, a boolean or a finite number of 64 bits."""
    kind = type(value)
    if kind is float:
        return math.isfinite(value)
    return kind is str or kind is bool or (kind is int and abs(value) <= _MAX_INT)


def _convert_section(value: Any, cls: type[Any]) -> Any:
    if isinstance(value, cls):
        return value
    shorthand = getattr(cls, "SHORTHAND", None)
    if isinstance(value, str) and shorthand is not None:  # `optimizer: AdamW`
        value = {shorthand: value}
    if not isinstance(value, Mapping):
        raise InvalidValueError(describe(cls))
    from rl_training.config.fields import parse  # which needs this module

    try:
        return parse(cls, value)
    except ConfigError as error:
        raise InvalidSectionError(error) from None


def _convert_union(value: Any, hint: Any) -> Any:
    expected = []
    for arm in union_arms(hint):
        try:
            return convert(value, arm)
        except InvalidSectionError:
            raise
        except InvalidValueError as error:
            expected.append(str(error))
    raise InvalidValueError(" or ".join(expected))


def _convert_tuple(value: Any, hint: Any) -> tuple[Any, ...]:
    entry_hints = typing.get_args(hint)
    # A lone string is a sequence too, but `tags: abc` never means ["a", "b", "c"].
    if not isinstance(value, (list, tuple, range)):
        raise InvalidValueError(describe(hint))
    if entry_hints[-1] is Ellipsis:
        entry_hints = (entry_hints[0],) * len(value)
    if len(value) != len(entry_hints):
        raise InvalidValueError(describe(hint))
    try:
        return tuple(convert(entry, entry_hint) for entry, entry_hint in zip(value, entry_hints, strict=True))
    except InvalidValueError:
        raise InvalidValueError(describe(hint)) from None


def _convert_dict(value: Any, hint: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidValueError("a mapping")
    if not all(isinstance(key, str) for key in value):
        raise InvalidValueError("a mapping with text keys")
    value_hint = (*typing.get_args(hint), Any, Any)[1]
    return {key: convert(entry, value_hint) for key, entry in value.items()}


def describe(hint: Any) -> str:
    """What a value of this type is, for `<name> must be ...`."""
    if len(union_arms(hint)) > 1:
        return " or ".join(map(describe, union_arms(hint)))
    if is_literal(hint):
        options = [str(option) for option in typing.get_args(hint)]
        return options[0] if len(options) == 1 else f"one of {', '.join(options)}"
    if typing.get_origin(hint) is tuple:
        entry_hints = typing.get_args(hint)
        count = "" if entry_hints[-1] is Ellipsis else f"{len(entry_hints)} "
        return f"a list of {count}{_MANY.get(entry_hints[0], 'entries')}"
    if hint is dict or typing.get_origin(hint) is dict or dataclasses.is_dataclass(hint):
        return "a mapping"
    if typing.get_origin(hint) is Callable:
        return "a Python class or function"
    if hint is types.NoneType:
        return "null"
    if hint not in _ONE:
        raise TypeError(f"settings cannot be annotated {hint!r}")
    return _ONE[hint]


def union_arms(hint: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself."""
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def is_literal(hint: Any) -> bool:
    """Whether an annotation is a Literal."""
    return typing.get_origin(hint) is Literal


def literal_options(hint: Any) -> tuple[str, ...]:
    """The strings of the literals in an annotation."""
    return tuple(str(option) for arm in union_arms(hint) if is_literal(arm) for option in typing.get_args(arm))


def is_number(value: Any) -> bool:
    """Whether a value is a number; a boolean is not."""
    kind = type(value)
    if kind in _COMMON:  # at once: the check against the abstract classes takes a microsecond
        return kind is float or kind is int
    return isinstance(value, (Integral, Real)) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether a value is a finite number."""
    try:
        return is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
