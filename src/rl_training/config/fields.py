"""Typed, constrained dataclass settings: one mechanism for the run's config and for every algorithm's own.

`gamma: float = setting(0.99, within(0, 1))` in a frozen dataclass whose `__post_init__` calls `check(self)`.
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
_LARGEST_INT = 2**63 - 1
_hints = functools.cache(typing.get_type_hints)  # evaluates the annotations: once a class is enough


@dataclasses.dataclass(frozen=True)
class Condition:
    """What a value must be: `text` completes `<name> must be ...`; `options` are the words to suggest from."""

    text: str
    test: Callable[[Any], bool]
    options: tuple[str, ...] = ()

    def holds(self, value: Any) -> bool:
        try:
            return bool(self.test(value))
        except (TypeError, ValueError, OverflowError):
            return False


def at_least(low: float, most: float | None = None) -> Condition:
    """`most`, allowed as well, is for what would only fill the memory."""
    text = f">= {low}" if most is None else f">= {low} and <= {most}"
    return Condition(text, lambda value: _is_finite(value) and value >= low and (most is None or value <= most))


def above(low: float) -> Condition:
    return Condition(f"> {low}", lambda value: _is_finite(value) and value > low)


def within(low: float, high: float) -> Condition:
    """Both ends allowed."""
    return Condition(f"in [{low}, {high}]", lambda value: _is_finite(value) and low <= value <= high)


def inside(low: float, high: float) -> Condition:
    """Neither end allowed."""
    return Condition(f"in ({low}, {high})", lambda value: _is_finite(value) and low < value < high)


def above_up_to(low: float, high: float) -> Condition:
    """The upper end allowed, the lower not."""
    return Condition(f"in ({low}, {high}]", lambda value: _is_finite(value) and low < value <= high)


def from_up_to(low: float, high: float) -> Condition:
    """The lower end allowed, the upper not."""
    return Condition(f"in [{low}, {high})", lambda value: _is_finite(value) and low <= value < high)


def one_of(*names: str) -> Condition:
    return Condition(f"one of {', '.join(names)}", lambda value: value in names, options=names)


def setting(default: Any = dataclasses.MISSING, must: Condition | None = None, **field_options: Any) -> Any:
    """A dataclass field with a condition on its value (on every entry, for a tuple); no default: required."""
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
    """Build `cls` from loose values, or raise one ConfigError with every problem in them.

    `prefix` (a dotted path) goes in front of each problem's path, not into its message. `explain` completes the
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
    hints = _hints(cls)
    checked: dict[str, Any] = {}
    for name, field in init_fields.items():
        if name in values:
            try:
                checked[name] = _checked(name, values[name], hints[name], _condition(cls, name))
            except _RefusalError as refused:
                problems.append(Problem((*base, name), str(refused)))
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
    """Convert and check every field in place; to be called first in a (frozen) dataclass's `__post_init__`."""
    hints = _hints(type(instance))
    problems: list[Problem] = []
    for field in dataclasses.fields(instance):
        try:
            condition = _condition(type(instance), field.name)
            value = _checked(field.name, getattr(instance, field.name), hints[field.name], condition)
        except _RefusalError as refused:
            problems.append(Problem((field.name,), str(refused)))
        else:
            object.__setattr__(instance, field.name, value)
    if problems:
        raise ConfigError(problems)


class _RefusalError(Exception):
    """Carries what the value should have been, or the finished message."""


def _condition(cls: type[Any], name: str) -> Condition | None:
    # A subclass that only changes a default (`gamma: float = 0.98`) keeps the condition it inherits.
    for ancestor in cls.__mro__:
        field = ancestor.__dict__.get("__dataclass_fields__", {}).get(name)
        if field is not None and "must" in field.metadata:
            return typing.cast(Condition, field.metadata["must"])
    return None


def _checked(name: str, value: Any, hint: Any, condition: Condition | None) -> Any:
    try:
        converted = _convert(value, hint)
    except _RefusalError as refused:
        must = str(refused)
        if condition is not None and condition.options:
            must = condition.text
        elif condition is not None and _is_number(value) and not _is_finite(value):
            must = f"{condition.text} and finite"
    else:
        must = _broken_condition(converted, hint, condition)
        if not must:
            return converted
    words = condition.options if condition is not None and condition.options else _literal_words(hint)
    suggestion = did_you_mean(value, words) if isinstance(value, str) else ""
    raise _RefusalError(f"{name} must be {must}, got {shown(value)}{suggestion}")


def _broken_condition(value: Any, hint: Any, condition: Condition | None) -> str:
    """What `value` (of the right type) should have been, or nothing."""
    if condition is None:
        return ""
    # In `float | Literal["auto"] | None` the condition is on the number alone.
    if value is None or (isinstance(value, str) and value in _literal_words(hint)):
        return ""
    exceptions = [_describe(arm) for arm in _union_arms(hint) if arm is types.NoneType or _is_literal(arm)]
    if isinstance(value, tuple):
        return "" if all(map(condition.holds, value)) else f"{condition.text} in every entry"
    if condition.holds(value):
        return ""
    return condition.text if condition.options else " or ".join([condition.text, *exceptions])


def _convert(value: Any, hint: Any) -> Any:
    """`value` as the annotated type, or `_RefusalError` with what was expected."""
    origin = typing.get_origin(hint)
    if hint is Any:
        return value
    if len(_union_arms(hint)) > 1:
        return _convert_union(value, hint)
    if origin is tuple:
        return _convert_tuple(value, hint)
    if hint is dict or origin is dict:
        return _convert_dict(value, hint)
    if hint is int and _is_number(value) and _is_finite(value) and value == int(value):
        if abs(value) > _LARGEST_INT:
            raise _RefusalError("an integer of at most 64 bits")
        return int(value)
    if hint is float and _is_number(value):
        if not _is_finite(value):
            raise _RefusalError("a finite number")
        return float(value)
    if hint is Path and isinstance(value, (str, Path)) and str(value) and "\0" not in str(value):
        return Path(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    if hint is types.NoneType and value is None:
        return value
    if _is_literal(hint) and any(type(value) is type(option) and value == option for option in typing.get_args(hint)):
        return value
    raise _RefusalError(_describe(hint))


def _convert_union(value: Any, hint: Any) -> Any:
    expected = []
    for arm in _union_arms(hint):
        try:
            return _convert(value, arm)
        except _RefusalError as refused:
            expected.append(str(refused))
    raise _RefusalError(" or ".join(expected))


def _convert_tuple(value: Any, hint: Any) -> tuple[Any, ...]:
    entry_hints = typing.get_args(hint)
    # A lone string is a sequence too, but `tags: abc` never means ["a", "b", "c"].
    if not isinstance(value, (list, tuple, range)):
        raise _RefusalError(_describe(hint))
    if entry_hints[-1] is Ellipsis:
        entry_hints = (entry_hints[0],) * len(value)
    if len(value) != len(entry_hints):
        raise _RefusalError(_describe(hint))
    try:
        return tuple(_convert(entry, entry_hint) for entry, entry_hint in zip(value, entry_hints, strict=True))
    except _RefusalError:
        raise _RefusalError(_describe(hint)) from None


def _convert_dict(value: Any, hint: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _RefusalError("a mapping")
    if not all(isinstance(key, str) for key in value):
        raise _RefusalError("a mapping with text keys")
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
    if hint is dict or typing.get_origin(hint) is dict:
        return "a mapping"
    if hint is types.NoneType:
        return "null"
    if hint not in _ONE:
        raise TypeError(f"settings cannot be annotated {hint!r}")
    return _ONE[hint]


def _union_arms(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_literal(hint: Any) -> bool:
    return typing.get_origin(hint) is Literal


def _literal_words(hint: Any) -> tuple[str, ...]:
    return tuple(str(word) for arm in _union_arms(hint) if _is_literal(arm) for word in typing.get_args(arm))


def _is_number(value: Any) -> bool:
    return isinstance(value, (Integral, Real)) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    try:
        return _is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        return False
