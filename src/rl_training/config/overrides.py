"""`--set key=value`: changes to a config from the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_training.config.yaml_loading import parse_yaml_value
from rl_training.core.checks import Problem, UserError, shown


@dataclass(frozen=True)
class Assignment:
    """One parsed override: `--set algo_kwargs.gamma=0.98`."""

    keys: tuple[str, ...]
    value: Any


def parse_overrides(texts: Sequence[str | Assignment]) -> tuple[list[Assignment], list[Problem]]:
    """The assignments of `--set`, and a problem for each text that cannot be parsed."""
    assignments, problems = [], []
    for given in texts:
        if isinstance(given, Assignment):
            assignments.append(given)
            continue
        dotted, equals, text = (part.strip() for part in given.partition("="))
        keys = tuple(dotted.split("."))
        if not equals or not all(keys):
            problems.append(Problem(keys, f"--set must be key=value or section.key=value, got {shown(given)}"))
            continue
        try:
            assignments.append(Assignment(keys, parse_yaml_value(text, source=f"--set {dotted}")))
        except UserError as error:
            problems.append(Problem(keys, str(error)))
    return assignments, problems


def assign(values: Mapping[str, Any], assignments: Iterable[Assignment]) -> tuple[dict[str, Any], list[Problem]]:
    """A copy of `values` with the assignments applied in order, and a problem for each that cannot be."""
    changed, problems = dict(values), []
    for one in assignments:
        section: dict[str, Any] = changed
        for depth, key in enumerate(one.keys[:-1], start=1):
            inner = section.get(key, {})
            if not isinstance(inner, Mapping):
                place = f"{'.'.join(one.keys[:depth])} is not a section, it is {shown(inner)}"
                problems.append(Problem(one.keys, f"--set {'.'.join(one.keys)}: {place}"))
                break
            section[key] = dict(inner)
            section = section[key]
        else:
            section[one.keys[-1]] = one.value
    return changed, problems
