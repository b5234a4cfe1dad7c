"""Typed dataclass fields with conditions, for the config of a run and the settings of every algorithm.

`gamma: float = setting(0.99, closed_interval(0, 1))` in a frozen dataclass whose `__post_init__` calls `check(self)`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union

from rl_training.core.checks import ConfigError, Problem, UserError, did_you_mean, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")

_ONE = {int: "an integer", float: "a number", bool: "true or false", str: "a string", Path: "a path"}
_MANY = {int: "integers", float: "numbers", bool: "booleans", str: "strings", Path: "paths"}
_MAX_INT = 2**63 - 1
type_hints = functools.cache(typing.get_type_hints)  # cached, since it evaluates the annotations


@dataclasses.dataclass(frozen=True)
class Condition:
    """A condition on a value: `text` completes `<name> must be ...`; `options` are the values to suggest."""

    text: str
    test: Callable[[Any], bool]
    options: tuple[str, ...] = ()

    def holds(self, value: Any) -> bool:
        """Whether `value` satisfies the condition; False where it cannot be tested."""
        try:
            return bool(self.test(value))
        except (TypeError, ValueError, OverflowError):
            return False


def at_least(low: float, high: float | None = None) -> Condition:
    """`value >= low`, and `value <= high` where larger values would only fill the memory."""
    text = f">= {low}" if high is None else f">= {low} and <= {high}"
    return Condition(text, lambda value: _is_finite(value) and value >= low and (high is None or value <= high))


def above(low: float) -> Condition:
    """`value > low`."""
    return Condition(f"> {low}", lambda value: _is_finite(value) and value > low)


def closed_interval(low: float, high: float) -> Condition:
    """`low <= value <= high`."""
    return Condition(f"in [{low}, {high}]", lambda value: _is_finite(value) and low <= value <= high)


def open_interval(low: float, high: float) -> Condition:
    """`low < value < high`."""
    return Condition(f"in ({low}, {high})", lambda value: _is_finite(value) and low < value < high)


def left_open_interval(low: float, high: float) -> Condition:
    """`low < value <= high`."""
    return Condition(f"in ({low}, {high}]", lambda value: _is_finite(value) and low < value <= high)


def right_open_interval(low: float, high: float) -> Condition:
    """`low <= value < high`."""
    return Condition(f"in [{low}, {high})", lambda value: _is_finite(value) and low <= value < high)


def one_of(*names: str) -> Condition:
    """`value` is one of `names`."""
    return Condition(f"one of {', '.join(names)}", lambda value: value in names, options=names)


def setting(default: Any = dataclasses.MISSING, must: Condition | None = None, **field_options: Any) -> Any:
    """A dataclass field with a condition on its value (for a tuple, on every entry); required without a default."""
    metadata = dict(field_options.pop("metadata", None) or {})
    if must is not None:
        metadata["must"] = must
    if isinstance(default, (dict, list, set)):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=metadata, **field_options)
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata, **field_options)
    return dataclasses.field(default=default, metadata=metadata, **field_options)


def parse(
    cls: type[Settings], values: Mapping[str, Any], prefix: str = "", explain: Callable[[str], str] | None = None
) -> Settings:
    """Build `cls` from unchecked values, or raise one ConfigError with every problem in them.

    `prefix` (a dotted path) is put in front of each problem's path, not into its message. `explain` completes the
    message about an unknown key; by default with the nearest name.
    """
    base = tuple(prefix.split(".")) if prefix else ()
    if not isinstance(values, Mapping):
        raise ConfigError([Problem(base, f"{prefix or 'the settings'} must be a mapping, got {shown(values)}")])
    init_fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    explain = explain or functools.partial(did_you_mean, options=init_fields)
    problems = [
        Problem((*base, str(key)), f"unknown key {shown(key)}{explain(str(key))}")
        for key in values
        if key not in init_fields
    ]
    hints = type_hints(cls)
    checked: dict[str, Any] = {}
    for name, field in init_fields.items():
        if name in values:
            try:
                checked[name] = _checked(name, values[name], hints[name], condition_of(cls, name))
            except _InvalidValueError as error:
                problems += error.problems((*base, name))
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(Problem((*base, name), f"{name} is required"))
    if problems:
        raise ConfigError(problems)
    try:
        return cls(**checked)
    except ConfigError as error:
        raise ConfigError(Problem(base + problem.path, problem.message) for problem in error.problems) from None
    except UserError as error:  # a rule between fields, from the dataclass's own __post_init__
        name_path = (error.field_name,) if error.field_name else ()
        raise ConfigError([Problem(base + name_path, str(error))]) from None


def check(instance: DataclassInstance) -> None:
    """Convert and check every field in place; call it first in the `__post_init__` of a (frozen) dataclass."""
    hints = type_hints(type(instance))
    problems: list[Problem] = []
    for field in dataclasses.fields(instance):
        try:
            condition = condition_of(type(instance), field.name)
            value = _checked(field.name, getattr(instance, field.name), hints[field.name], condition)
        except _InvalidValueError as error:
            problems += error.problems((field.name,))
        else:
            object.__setattr__(instance, field.name, value)
    if problems:
        raise ConfigError(problems)


class _InvalidValueError(Exception):
    """An invalid value; its text is what was expected, or the finished message."""

    def problems(self, path: tuple[str, ...]) -> list[Problem]:
        return [Problem(path, str(self))]


class _InvalidSectionError(_InvalidValueError):
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


def condition_of(cls: type[Any], name: str) -> Condition | None:
    """The condition on a field of a dataclass of settings."""
    # A subclass that only changes a default (`gamma: float = 0.98`) inherits the condition.
    for ancestor in cls.__mro__:
        field = ancestor.__dict__.get("__dataclass_fields__", {}).get(name)
        if field is not None and "must" in field.metadata:
            return typing.cast(Condition, field.metadata["must"])
    return None


def _checked(name: str, value: Any, hint: Any, condition: Condition | None) -> Any:
    try:
        converted = _convert(value, hint)
    except _InvalidSectionError:
        raise
    except _InvalidValueError as error:
        must = str(error)
        if condition is not None and condition.options:
            must = condition.text
        elif condition is not None and _is_number(value) and not _is_finite(value):
            must = f"{condition.text} and finite"
    else:
        must = _violated_condition(converted, hint, condition)
        if not must:
            return converted
    options = condition.options if condition is not None and condition.options else _literal_options(hint)
    suggestion = did_you_mean(value, options) if isinstance(value, str) else ""
    raise _InvalidValueError(f"{name} must be {must}, got {shown(value)}{suggestion}")


def _violated_condition(value: Any, hint: Any, condition: Condition | None) -> str:
    """The condition that `value` (of the right type) violates, or an empty string."""
    if condition is None:
        return ""
    # In `float | Literal["auto"] | None` the condition is on the number alone.
    if value is None or (isinstance(value, str) and value in _literal_options(hint)):
        return ""
    exceptions = [_describe(arm) for arm in _union_arms(hint) if arm is types.NoneType or _is_literal(arm)]
    if isinstance(value, tuple):
        return "" if all(map(condition.holds, value)) else f"{condition.text} in every entry"
    if condition.holds(value):
        return ""
    return condition.text if condition.options else " or ".join([condition.text, *exceptions])


def _convert(value: Any, hint: Any) -> Any:
    """`value` converted to the annotated type, or `_InvalidValueError` with what was expected."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if len(_union_arms(hint)) > 1:
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
    if hint is int and _is_number(value) and _is_finite(value) and value == int(value):
        if abs(value) > _MAX_INT:
            raise _InvalidValueError("an integer of at most 64 bits")
        return int(value)
    if hint is float and _is_number(value):
        if not _is_finite(value):
            raise _InvalidValueError("a finite number")
        return float(value)
    if hint is Path and isinstance(value, (str, Path)) and str(value) and "\0" not in str(value):
        return Path(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if hint is types.NoneType and value is None:
        return value
    if _is_literal(hint) and any(type(value) is type(option) and value == option for option in typing.get_args(hint)):
        return value
    raise _InvalidValueError(_describe(hint))


def _convert_section(value: Any, cls: type[Any]) -> Any:
    if isinstance(value, cls):
        return value
    shorthand = getattr(cls, "SHORTHAND", None)
    if isinstance(value, str) and shorthand is not None:  # `optimizer: AdamW`
        value = {shorthand: value}
    if not isinstance(value, Mapping):
        raise _InvalidValueError(_describe(cls))
    try:
        return parse(cls, value)
    except ConfigError as error:
        raise _InvalidSectionError(error) from None


def _convert_union(value: Any, hint: Any) -> Any:
    expected = []
    for arm in _union_arms(hint):
        try:
            return _convert(value, arm)
        except _InvalidSectionError:
            raise
        except _InvalidValueError as error:
            expected.append(str(error))
    raise _InvalidValueError(" or ".join(expected))


def _convert_tuple(value: Any, hint: Any) -> tuple[Any, ...]:
    entry_hints = typing.get_args(hint)
    # A lone string is a sequence too, but `tags: abc` never means ["a", "b", "c"].
    if not isinstance(value, (list, tuple, range)):
        raise _InvalidValueError(_describe(hint))
    if entry_hints[-1] is Ellipsis:
        entry_hints = (entry_hints[0],) * len(value)
    if len(value) != len(entry_hints):
        raise _InvalidValueError(_describe(hint))
    try:
        return tuple(_convert(entry, entry_hint) for entry, entry_hint in zip(value, entry_hints, strict=True))
    except _InvalidValueError:
        raise _InvalidValueError(_describe(hint)) from None


def _convert_dict(value: Any, hint: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _InvalidValueError("a mapping")
    if not all(isinstance(key, str) for key in value):
        raise _InvalidValueError("a mapping with text keys")
    value_hint = (*typing.get_args(hint), Any, Any)[1]
    return {key: _convert(entry, value_hint) for key, entry in value.items()}


def _describe(hint: Any) -> str:
    if len(_union_arms(hint)) > 1:
        return " or ".join(map(_describe, _union_arms(hint)))
    if _is_literal(hint):
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


def _union_arms(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is Literal


def _literal_options(hint: Any) -> tuple[str, ...]:
    return tuple(str(option) for arm in _union_arms(hint) if _is_literal(arm) for option in typing.get_args(arm))


def _is_number(value: Any) -> bool:
    return isinstance(value, (Integral, Real)) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    try:
        return _is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
