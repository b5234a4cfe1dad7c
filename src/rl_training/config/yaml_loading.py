"""A safe YAML loader with line numbers, and a writer whose output loads as the same values.

Differs from YAML 1.1 on purpose: `1e-3` is a number, only true and false are booleans (`on` and `yes` are strings),
there are no dates, octals or base-60 numbers; duplicate keys, aliases and tags are rejected.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from pathlib import Path, PurePath
from typing import Any, ClassVar

import yaml  # type: ignore[import-untyped, unused-ignore]

from rl_training.config.objects import object_name
from rl_training.core.checks import UserError, shown

MAX_BYTES = 2**20
MAX_DEPTH = 50

_PREFIX = "tag:yaml.org,2002:"
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*)\Z")
_FLOAT = re.compile(
    r"([-+]?([0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|\.[0-9][0-9_]*([eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+)"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z"
)
_SCALARS = {
    "null": (re.compile(r"(~|null|Null|NULL|)\Z"), lambda text: None),
    "bool": (re.compile(r"(true|True|TRUE|false|False|FALSE)\Z"), lambda text: text.lower() == "true"),
    "int": (_INT, lambda text: int(text.replace("_", ""))),
    "float": (_FLOAT, lambda text: float(re.sub(r"_|\.(?=[iInN])", "", text))),
}


@dataclass(frozen=True)
class LoadedYaml:
    """The values of a YAML file, and the line of each."""

    values: dict[str, Any]
    source: str
    lines: dict[tuple[str, ...], int] = field(default_factory=dict, repr=False)

    def line(self, path: tuple[str, ...]) -> int | None:
        """The line of the key at `path`, or of its nearest parent; None for a value that is not from the file."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return None

    def with_values(self, values: Mapping[str, Any]) -> LoadedYaml:
        """A copy with other values, as after command-line overrides; changed values lose their line numbers."""
        unchanged = {path: line for path, line in self.lines.items() if _same_at(self.values, values, path)}
        return replace(self, values=dict(values), lines=unchanged)


def load_yaml(path: Path | str) -> LoadedYaml:
    """Read a YAML file that holds one mapping, or raise a UserError of one line."""
    return parse_yaml(_read_text(path), source=str(path))


def parse_yaml(text: str, source: str) -> LoadedYaml:
    """`load_yaml` for text already in memory; `source` names it in errors."""
    root = _compose(text, source)
    if root is None:
        raise UserError(f"{source}:1: the file is empty; expected a mapping of settings")
    lines: dict[tuple[str, ...], int] = {(): root.start_mark.line + 1}
    values = _construct(root, source, (), lines)
    if not isinstance(values, dict):
        raise UserError(f"{source}:{lines[()]}: expected a mapping of settings, got {shown(values)}")
    return LoadedYaml(values, source, lines)


def parse_yaml_value(text: str, source: str) -> Any:
    """Parse one value by the same rules: `0.98`, `1e-3`, `auto`, `[64, 64]`."""
    try:
        root = _compose(text, source)
        return None if root is None else _construct(root, source, (), {})
    except UserError as error:  # the line within a single value is meaningless
        raise UserError(re.sub(r":[0-9]+: ", ": ", str(error), count=1)) from None


def dump_yaml(values: Mapping[str, Any]) -> str:
    """YAML that `load_yaml` reads back as the same values (tuples as lists, paths as strings)."""
    text: str = yaml.dump(
        plain_values(values), Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True, width=2**31
    )
    return text


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values as dicts, lists, strings, numbers, booleans and None only; rejects other types."""
    plain: dict[str, Any] = _plain(values, ())
    return plain


class _Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
    """Turns text into nodes; rejects everything that could run code or grow without bound."""

    yaml_implicit_resolvers: ClassVar[dict[str | None, list[Any]]] = {
        None: [(_PREFIX + name, pattern) for name, (pattern, _) in _SCALARS.items()],
        "": [],
    }
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent):
            raise _error_at(self.name, event, f"aliases are not supported, write out the value of *{event.anchor}")
        if event.tag is not None:
            raise _error_at(self.name, event, f"tags are not supported, got {shown(event.tag.replace(_PREFIX, '!!'))}")
        # Checked while composing: PyYAML's own recursion and scan time grow with the depth.
        if self.depth >= MAX_DEPTH:
            raise _error_at(self.name, event, f"nested more than {MAX_DEPTH} levels deep")
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):  # type: ignore[misc, unused-ignore]
    """Quotes every string that this loader or a YAML 1.1 loader would parse as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def write_string(self, data: str) -> Any:
        # PyYAML's block and single-quoted styles lose some line breaks and control characters.
        return self.represent_scalar(_PREFIX + "str", data, style=None if data.isprintable() else '"')

    def write_list(self, data: list[Any]) -> Any:
        on_one_line = not any(isinstance(entry, (list, dict)) for entry in data)
        return self.represent_sequence(_PREFIX + "seq", data, flow_style=on_one_line)


_Dumper.add_representer(str, _Dumper.write_string)
_Dumper.add_representer(list, _Dumper.write_list)
for _name, (_pattern, _) in _SCALARS.items():
    _Dumper.add_implicit_resolver(_PREFIX + _name, _pattern, None)


def _read_text(path: Path | str) -> str:
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise UserError(f"{path}: is a directory, not a YAML file")
        if not stat.S_ISREG(mode):  # reading a pipe or a device might never end
            raise UserError(f"{path}: is not a regular file")
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{shown(str(path))}: is not a file name: {error}") from None
    if len(content) > MAX_BYTES:
        raise UserError(f"{path}: is larger than {MAX_BYTES // 2**20} MiB, too large for a config")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: is not UTF-8 text (byte {content[error.start]:#04x})") from None


def _compose(text: str, source: str) -> Any:
    """The root node, or None for an empty text."""
    try:
        loader = _Loader(text)
        loader.name = source
        return loader.get_single_node()
    except UserError:
        raise
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UserError(f"{source}:{line}: not valid YAML: special characters are not allowed") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        reason = ", ".join(filter(None, [error.context, error.problem]))
        raise UserError(f"{source}:{line}: not valid YAML: {_one_line(reason)}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # e.g. the escape "\UFFFFFFFF"
        raise UserError(f"{source}:{loader.line + 1}: not valid YAML: {_one_line(error)}") from None


def _construct(node: Any, source: str, path: tuple[str, ...], lines: dict[tuple[str, ...], int]) -> Any:
    if isinstance(node, yaml.SequenceNode):
        entries = []
        for index, entry in enumerate(node.value):
            entry_path = (*path, str(index))
            lines[entry_path] = entry.start_mark.line + 1
            entries.append(_construct(entry, source, entry_path, lines))
        return entries
    if isinstance(node, yaml.MappingNode):
        return _construct_mapping(node, source, path, lines)
    _, convert = _SCALARS.get(node.tag.removeprefix(_PREFIX), (None, str))
    try:
        return convert(node.value)
    except ValueError:
        raise _error_at(source, node, f"not a number: {shown(node.value)}") from None


def _construct_mapping(
    node: Any, source: str, path: tuple[str, ...], lines: dict[tuple[str, ...], int]
) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = _construct(key_node, source, path, {})
        if not isinstance(key, str):
            raise _error_at(source, key_node, f"keys must be text, got {shown(key)}")
        key_path = (*path, key)
        if key in mapping:
            raise _error_at(source, key_node, f"duplicate key {shown(key)}, first on line {lines[key_path]}")
        lines[key_path] = key_node.start_mark.line + 1
        mapping[key] = _construct(value_node, source, key_path, lines)
    return mapping


def _plain(value: Any, path: tuple[str, ...]) -> Any:
    if len(path) >= MAX_DEPTH:
        raise UserError(f"{'.'.join(path)[:80]}... is nested more than {MAX_DEPTH} levels deep")
    kind = type(value)
    if kind is str or kind is float or kind is bool or value is None or (kind is int and value.bit_length() <= 4096):
        return value
    name = ".".join(path) or "the config"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UserError(f"{name} must be a mapping with text keys, got the key {shown(key)}")
        return {str(key): _plain(entry, (*path, key)) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry, (*path, str(index))) for index, entry in enumerate(value)]
    if isinstance(value, (str, PurePath)):
        return str(value)
    if isinstance(value, Integral) and int(value).bit_length() <= 4096:
        return int(value)
    if isinstance(value, Real) and not isinstance(value, Integral):
        return float(value)
    if callable(value) and path[:1] == ("algo_kwargs",):  # a network or a schedule from Python: its name is recorded
        return object_name(value)
    raise UserError(f"{name} cannot be saved in a config: {shown(value)}")


def _same_at(before: Any, after: Any, path: tuple[str, ...]) -> bool:
    for key in path:
        if isinstance(before, list) and isinstance(after, list) and int(key) < len(after):
            before, after = before[int(key)], after[int(key)]
        elif isinstance(before, dict) and isinstance(after, Mapping) and key in after:
            before, after = before[key], after[key]
        else:
            return False
    return before is after or bool(before == after)


def _error_at(source: str, place: Any, message: str) -> UserError:
    """The error at a YAML event or node."""
    return UserError(f"{source}:{place.start_mark.line + 1}: {message}")


def _one_line(error: object) -> str:
    return " ".join(str(error).split())
