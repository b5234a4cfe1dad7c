"""The overrides of a sweep: blocks of a grid, a list or random draws, with conditions, whose variants multiply."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_training.config.fields import at_least, check, parse, setting
from rl_training.core.checks import ConfigError, Problem, did_you_mean, require, shown
from rl_training.studies.space import draw_all, parse_space

MAX_RUNS = 10_000  # of one study
KINDS = ("grid", "list", "random")


@dataclass(frozen=True)
class RandomDraws:
    """Random variants: `count` draws from the ranges of `values`."""

    values: dict[str, Any]
    count: int = setting(must=at_least(1, MAX_RUNS))
    seed: int = setting(0, at_least(0))

    def __post_init__(self) -> None:
        check(self)
        require(bool(self.values), "values", "a mapping from settings to ranges")
        parse_space(self.values, "values")


@dataclass(frozen=True)
class Block:
    """One block of overrides: exactly one of `grid`, `list` and `random`; `only` where its conditions hold."""

    grid: dict[str, Any] | None = None  # values of each setting, all combinations
    list: tuple[dict[str, Any], ...] | None = None  # variants, written out
    random: RandomDraws | None = None
    only: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        given = [name for name in KINDS if getattr(self, name) is not None]
        require(len(given) == 1, "overrides", f"blocks with one of {', '.join(KINDS)}, got {shown(given)}")
        for name, values in (self.grid or {}).items():
            some = isinstance(values, (tuple, builtins.list)) and len(values) > 0
            require(some, name, f"a list of values, got {shown(values)}")
            distinct = len({repr(one) for one in values}) == len(values)
            require(distinct, name, f"distinct values, got {shown(values)}")
        require(self.grid != {} and self.list != (), given[0], "not empty")


@dataclass(frozen=True)
class Choice:
    """One override of one run: its key as after --set, its value, and where the study has it."""

    key: str
    value: Any
    path: tuple[str, ...]


Variant = tuple[Choice, ...]


@dataclass(frozen=True)
class PlacedBlock:
    """A block with its variants and its place in the file."""

    variants: Sequence[Variant]
    only: Mapping[str, Any]
    path: tuple[str, ...]


def parse_blocks(given: Sequence[Mapping[str, Any]]) -> tuple[list[PlacedBlock], list[Problem]]:
    """The blocks of `overrides`, and the problems of those that cannot be read."""
    blocks: list[PlacedBlock] = []
    problems: list[Problem] = []
    for index, values in enumerate(given):
        try:
            block = parse(Block, values, f"overrides.{index}")
            path = ("overrides", str(index))
            blocks.append(PlacedBlock(_variants(block, path), block.only, path))
        except ConfigError as error:
            problems += error.problems
    return blocks, problems


def _variants(block: Block, path: tuple[str, ...]) -> list[Variant]:
    if block.grid is not None:
        axes = [
            [Choice(key, value, (*path, "grid", key, str(index))) for index, value in enumerate(values)]
            for key, values in block.grid.items()
        ]
        return list(itertools.islice(itertools.product(*axes), MAX_RUNS + 1))
    if block.list is not None:
        return [
            tuple(Choice(key, value, (*path, "list", str(index), key)) for key, value in one.items())
            for index, one in enumerate(block.list)
        ]
    assert block.random is not None
    space = parse_space(block.random.values, "values")
    return [
        tuple(
            Choice(key, value, (*path, "random", "values", key))
            for key, value in draw_all(space, block.random.seed, number).items()
        )
        for number in range(block.random.count)
    ]


def check_conditions(
    conditions: Sequence[tuple[tuple[str, ...], Mapping[str, Any]]], facts: Mapping[str, Sequence[str]]
) -> list[Problem]:
    """The problems of conditions, each with its path; `facts` are the names they may use, with the values of some."""
    problems: list[Problem] = []
    for path, condition in conditions:
        for key, wanted in condition.items():
            if key not in facts:
                hint = did_you_mean(key, facts) or f"; there are {', '.join(facts)}"
                problems.append(Problem((*path, key), f"unknown condition {shown(key)}{hint}"))
                continue
            for one in _entries(wanted):
                if facts[key] and one not in facts[key]:
                    hint = did_you_mean(str(one), facts[key]) or f"; the study has {', '.join(facts[key])}"
                    problems.append(Problem((*path, key), f"no run has {key} {shown(one)}{hint}"))
    return problems


def holds(condition: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether every entry of a condition is among the facts of a run; a fact that a run does not have is not."""
    return all(key in facts and facts[key] in _entries(wanted) for key, wanted in condition.items())


def _entries(wanted: Any) -> Sequence[Any]:
    return wanted if isinstance(wanted, (list, tuple)) else [wanted]


def combinations(blocks: Sequence[PlacedBlock], facts: Mapping[str, Any]) -> list[Variant]:
    """All combinations of the blocks' variants for one algorithm and environment, at most one more than allowed."""
    found: list[Variant] = [()]
    for block in blocks:
        longer: list[Variant] = []
        for variant in found:
            known = {**facts, **{choice.key: choice.value for choice in variant}}
            more = block.variants if holds(block.only, known) else [()]
            longer += [(*variant, *one) for one in more]
            if len(longer) > MAX_RUNS:
                return longer
        found = longer
    return found
