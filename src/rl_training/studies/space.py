"""Ranges and choices of settings: what a random sweep draws from and what `tune` searches."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.config.fields import check, parse
from rl_training.core.checks import ConfigError, Problem, require, shown


@dataclass(frozen=True)
class Dimension:
    """The values of one setting: a range from `low` to `high`, or `choices`."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # uniform in the logarithm
    integer: bool = False  # whole numbers, both bounds included
    choices: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        check(self)
        if self.choices:
            require(self.low is None and self.high is None, "choices", "given without low and high")
            require(len({repr(one) for one in self.choices}) == len(self.choices), "choices", "distinct")
            return
        require(self.low is not None and self.high is not None, "low", "given with high, or choices instead of both")
        assert self.low is not None and self.high is not None
        require(self.low < self.high, "low", f"< high, got {self.low:g} and {self.high:g}")
        require(not self.log or self.low > 0, "low", f"> 0 with log, got {self.low:g}")
        whole = self.low == int(self.low) and self.high == int(self.high)
        require(not self.integer or whole, "low", f"a whole number, and high too, got {self.low:g} and {self.high:g}")

    @property
    def bounds(self) -> tuple[float, float]:
        assert self.low is not None and self.high is not None
        return self.low, self.high

    def draw(self, rng: np.random.Generator) -> Any:
        """One value, as plain Python."""
        if self.choices:
            return self.choices[int(rng.integers(len(self.choices)))]
        low, high = self.bounds
        if self.integer and not self.log:
            return int(rng.integers(int(low), int(high) + 1))
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else float(rng.uniform(low, high))
        return min(max(round(value), int(low)), int(high)) if self.integer else value

    def corners(self) -> tuple[Any, ...]:
        """The choices, or both ends of the range: values that must all be valid."""
        if self.choices:
            return self.choices
        return tuple(int(one) if self.integer else one for one in self.bounds)


def parse_space(values: Mapping[str, Any], prefix: str) -> dict[str, Dimension]:
    """The dimensions of a mapping from settings to ranges; a list is short for its choices. Reports all problems."""
    found: dict[str, Dimension] = {}
    problems: list[Problem] = []
    base = tuple(prefix.split("."))
    for name, given in values.items():
        try:
            if isinstance(given, (list, tuple)):
                given = {"choices": given}
            if not isinstance(given, Mapping):
                message = f"{name} must be a list of values, or a mapping with low and high, got {shown(given)}"
                raise ConfigError([Problem((), message)])
            found[name] = parse(Dimension, given)
        except ConfigError as error:
            problems += [Problem((*base, name, *one.path), _named(name, one)) for one in error.problems]
    if problems:
        raise ConfigError(problems)
    return found


def _named(name: str, problem: Problem) -> str:
    return str(problem) if str(problem).startswith(name) else f"{name}: {problem}"


def draw_all(space: Mapping[str, Dimension], seed: int, number: int) -> dict[str, Any]:
    """The `number`-th random draw; each value depends on the seed, the number and its own name alone."""
    return {
        name: dimension.draw(np.random.default_rng([seed, number, zlib.crc32(name.encode())]))
        for name, dimension in space.items()
    }
