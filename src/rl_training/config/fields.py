"""Typed dataclass fields with conditions, for the config of a run and the settings of every algorithm.

`gamma: float = setting(0.99, closed_interval(0, 1))` in a frozen dataclass whose `__post_init__` calls `check(self)`.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rl_training.config.conversion import (
    InvalidSectionError,
    InvalidValueError,
    convert,
    describe,
    is_finite,
    is_literal,
    is_number,
    literal_options,
    union_arms,
)
from rl_training.core.checks import ConfigError, Problem, UserError, did_you_mean, shown

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")

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
    return Condition(text, lambda value: is_finite(value) and value >= low and (high is None or value <= high))


def above(low: float) -> Condition:
    """`value > low`."""
    return Condition(f"> {low}", lambda value: is_finite(value) and value > low)


def closed_interval(low: float, high: float) -> Condition:
    """`low <= value <= high`."""
    return Condition(f"in [{low}, {high}]", lambda value: is_finite(value) and low <= value <= high)


def open_interval(low: float, high: float) -> Condition:
    """`low < value < high`."""
    return Condition(f"in ({low}, {high})", lambda value: is_finite(value) and low < value < high)


def left_open_interval(low: float, high: float) -> Condition:
    """`low < value <= high`."""
    return Condition(f"in ({low}, {high}]", lambda value: is_finite(value) and low < value <= high)


def right_open_interval(low: float, high: float) -> Condition:
    """`low <= value < high`."""
    return Condition(f"in [{low}, {high})", lambda value: is_finite(value) and low <= value < high)


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
            except InvalidValueError as error:
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
        except InvalidValueError as error:
            problems += error.problems((field.name,))
        else:
            object.__setattr__(instance, field.name, value)
    if problems:
        raise ConfigError(problems)


@functools.cache
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
        converted = convert(value, hint)
    except InvalidSectionError:
        raise
    except InvalidValueError as error:
        must = str(error)
        if condition is not None and condition.options:
            must = condition.text
        elif condition is not None and is_number(value) and not is_finite(value):
            must = f"{condition.text} and finite"
    else:
        must = _violated_condition(converted, hint, condition)
        if not must:
            return converted
    options = condition.options if condition is not None and condition.options else literal_options(hint)
    suggestion = did_you_mean(value, options) if isinstance(value, str) else ""
    raise InvalidValueError(f"{name} must be {must}, got {shown(value)}{suggestion}")


def _violated_condition(value: Any, hint: Any, condition: Condition | None) -> str:
    """The condition that `value` (of the right type) violates, or an empty string."""
    if condition is None:
        return ""
    # In `float | Literal["auto"] | None` the condition is on the number alone.
    if value is None or (isinstance(value, str) and value in literal_options(hint)):
        return ""
    if isinstance(value, tuple):
        return "" if all(map(condition.holds, value)) else f"{condition.text} in every entry"
    if condition.holds(value):
        return ""
    exceptions = [describe(arm) for arm in union_arms(hint) if arm is types.NoneType or is_literal(arm)]
    return condition.text if condition.options else " or ".join([condition.text, *exceptions])
