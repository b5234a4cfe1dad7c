"""The meaning of settings: the comments beside the fields of their dataclasses, read from the source.

A trailing comment belongs to its field; without one, the comment lines right above it do. A comment that starts with
`Defaults:` names the source of a class's defaults. A subclass that only changes a default inherits the meaning.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import io
import textwrap
import tokenize
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

from rl_training.config.conversion import union_arms
from rl_training.config.fields import condition_of, type_hints

SOURCE = "Defaults:"  # starts the comment that cites the source of a class's defaults
Described = dict[str, "FieldMeaning"]


@dataclasses.dataclass(frozen=True)
class FieldMeaning:
    """One field of a dataclass of settings, for people and editors."""

    name: str
    type: Any  # what a caller may pass
    default: Any  # `dataclasses.MISSING`: it is required
    meaning: str  # empty where the source has no comment, or cannot be read
    allowed: str  # a condition such as `in [0, 1]`, or empty
    source: str  # of the default, or empty
    section: type[Any] | None = None  # the dataclass of a setting that has settings itself

    @property
    def type_text(self) -> str:
        return type_text(self.type)

    @property
    def default_text(self) -> str:
        return default_text(self.default)

    @property
    def explanation(self) -> str:
        """The meaning, with what is allowed."""
        return f"{self.meaning}{f' ({self.allowed})' if self.allowed else ''}".strip()


@dataclasses.dataclass(frozen=True)
class _Comments:
    """The comments of one class: by field, and the source of its defaults."""

    fields: Mapping[str, str]
    source: str


def describe(cls: Any) -> Described:
    """Every field that a dataclass of settings takes, by name, in the order of its definition."""
    return _described(cls)


@functools.cache
def _described(cls: Any) -> Described:
    hints = type_hints(cls)
    return {
        field.name: FieldMeaning(
            name=field.name,
            type=accepted_type(hints[field.name]),
            default=_default(field),
            meaning=next((found for found in _by_ancestor(cls, field.name) if found), ""),
            allowed=_allowed(cls, field.name),
            source=_source(cls, field.name),
            section=next((arm for arm in union_arms(hints[field.name]) if dataclasses.is_dataclass(arm)), None),
        )
        for field in dataclasses.fields(cls)
        if field.init
    }


def _by_ancestor(cls: Any, name: str) -> list[str]:
    """The comments beside a field, the nearest class first."""
    return [_comments(ancestor).fields.get(name, "") for ancestor in cls.__mro__[:-1]]


def _source(cls: Any, name: str) -> str:
    """What the class that sets a default cites; a class that cites nothing leaves it to the algorithm's own."""
    sets = next(one for one in cls.__mro__ if name in inspect.get_annotations(one))
    return _comments(sets).source or source_of_defaults(cls)


def source_of_defaults(cls: Any) -> str:
    """The source of a class's defaults: its own, or that of the nearest ancestor that cites one."""
    return next((found for one in cls.__mro__[:-1] if (found := _comments(one).source)), "")


def _allowed(cls: Any, name: str) -> str:
    condition = condition_of(cls, name)
    return condition.text if condition is not None else ""


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


# --- comments --------------------------------------------------------------------------------------------------------
@functools.cache
def _comments(cls: Any) -> _Comments:
    """The comments in the source of one class; none where there is no source, as in an interactive session."""
    try:
        text = textwrap.dedent(inspect.getsource(cls))
        body = typing.cast(ast.ClassDef, ast.parse(text).body[0]).body
        alone, trailing = _comment_lines(text)
    except (OSError, TypeError, SyntaxError, IndexError, AttributeError, tokenize.TokenError):
        return _Comments({}, "")
    fields = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.end_lineno or node.lineno
            above = _block_above(alone, node.lineno)
            beside = trailing.get(last) or trailing.get(node.lineno)
            fields[node.target.id] = beside or ("" if above.startswith(SOURCE) else above)
    return _Comments(fields, _cited(alone))


def _comment_lines(text: str) -> tuple[dict[int, str], dict[int, str]]:
    """The comments by line: those that have a line for themselves, and those that follow code."""
    alone: dict[int, str] = {}
    trailing: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            kind = trailing if token.line[: token.start[1]].strip() else alone
            kind[token.start[0]] = token.string.lstrip("#").strip()
    return alone, trailing


def _block_above(alone: Mapping[int, str], line: int) -> str:
    first = line
    while first - 1 in alone:
        first -= 1
    return " ".join(alone[number] for number in range(first, line))


def _cited(alone: Mapping[int, str]) -> str:
    """The comment lines from `Defaults:` on, without the word."""
    start = next((line for line in sorted(alone) if alone[line].startswith(SOURCE)), None)
    if start is None:
        return ""
    last = start
    while last + 1 in alone:
        last += 1
    return " ".join(alone[line] for line in range(start, last + 1)).removeprefix(SOURCE).strip(" .")


# --- types and defaults as text --------------------------------------------------------------------------------------
def accepted_type(hint: Any) -> Any:
    """The type of what a caller may pass for a field: a list for a tuple, text for a path."""
    accepted: list[Any] = []
    for arm in union_arms(hint):
        inner = typing.get_args(arm)
        if typing.get_origin(arm) is tuple and inner[-1] is Ellipsis:
            accepted.append(Sequence[accepted_type(inner[0])])  # type: ignore[misc]
        elif arm is dict or typing.get_origin(arm) is dict:
            key, value = inner or (str, Any)
            accepted.append(Mapping[key, value])  # type: ignore[valid-type]
        elif dataclasses.is_dataclass(arm):
            accepted += [*([str] if hasattr(arm, "SHORTHAND") else []), Mapping[str, Any]]
        else:
            accepted += [str, Path] if arm is Path else [arm]
    return Union[tuple(accepted)]  # noqa: UP007  the arms are only known here


def type_text(hint: Any) -> str:
    """A type as it is written in an annotation: `float | Literal["auto"]`."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_text, inner))
    if hint is types.NoneType:
        return "None"
    if hint is Any or hint is Ellipsis:
        return "Any" if hint is Any else "..."
    if origin is Literal:
        return f"Literal[{', '.join(_quoted(one) for one in inner)}]"
    if isinstance(hint, list):  # the arguments of a Callable
        return f"[{', '.join(map(type_text, hint))}]"
    name = str(getattr(origin or hint, "__name__", hint))
    return f"{name}[{', '.join(map(type_text, inner))}]" if inner else name


def default_text(value: Any) -> str:
    """A default as it is written in Python; `required` where there is none."""
    if value is dataclasses.MISSING:
        return "required"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(default_text, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if dataclasses.is_dataclass(value):
        return repr(changed_fields(value))
    return _quoted(str(value)) if isinstance(value, (str, Path)) else repr(value)


def changed_fields(section: Any) -> dict[str, Any]:
    """The values of a section that are not its defaults."""
    values = {field.name: (getattr(section, field.name), _default(field)) for field in dataclasses.fields(section)}
    return {name: value for name, (value, default) in values.items() if value != default}


def _quoted(value: Any) -> str:
    return '"' + value + '"' if isinstance(value, str) and value.isprintable() and '"' not in value else repr(value)
