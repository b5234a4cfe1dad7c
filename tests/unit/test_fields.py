"""Typed settings: conversion, conditions, and messages that name the mistake."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from rl_training.config import conversion, fields
from rl_training.config.fields import (
    Condition,
    above,
    at_least,
    check,
    closed_interval,
    left_open_interval,
    one_of,
    open_interval,
    parse,
    right_open_interval,
    setting,
)
from rl_training.core.checks import ConfigError, Problem, UserError, did_you_mean, nearest, require, shown


@dataclass(frozen=True)
class Settings:
    name: str
    learning_rate: float = setting(3e-4, above(0))
    subset_size: int = setting(2, at_least(1))
    num_critics: int = setting(10, at_least(1))
    alpha: float | Literal["auto"] = setting("auto", at_least(0))
    offset: float = 0.0
    hidden_sizes: tuple[int, ...] = setting((256, 256), at_least(1))
    frame_size: tuple[int, int] = (84, 84)
    tags: tuple[str, ...] = ()
    dueling: bool = False
    limit: int | None = setting(None, at_least(1))
    mode: Literal["mean", "sample"] = "mean"
    kind: str = setting("random", one_of("random", "expert"))
    folder: Path = Path("runs")
    extra: dict[str, Any] = setting({"a": [1]})  # noqa: RUF009 - copied for each instance

    def __post_init__(self) -> None:
        check(self)
        require(self.subset_size <= self.num_critics, "subset_size", f"<= num_critics ({self.num_critics})")


def message_for(**values: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(Settings, {"name": "x", **values})
    assert len(caught.value.problems) == 1
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learnng_rate": 1}, "unknown key 'learnng_rate'; did you mean learning_rate?"),
        ({"zzz": 1}, "unknown key 'zzz'"),
        ({"name": 5}, "name must be a string, got 5"),
        ({"subset_size": "lots"}, "subset_size must be an integer, got 'lots'"),
        ({"subset_size": 1.5}, "subset_size must be an integer, got 1.5"),
        ({"subset_size": True}, "subset_size must be an integer, got True"),
        ({"subset_size": None}, "subset_size must be an integer, got None"),
        ({"subset_size": 0}, "subset_size must be >= 1, got 0"),
        ({"subset_size": 1e300}, "subset_size must be an integer of at most 64 bits, got 1e+300"),
        ({"subset_size": math.inf}, "subset_size must be >= 1 and finite, got inf"),
        ({"subset_size": 11}, "subset_size must be <= num_critics (10)"),
        ({"learning_rate": 0}, "learning_rate must be > 0, got 0"),
        ({"learning_rate": math.nan}, "learning_rate must be > 0 and finite, got nan"),
        ({"learning_rate": "1e-3"}, "learning_rate must be a number, got '1e-3'"),
        ({"learning_rate": False}, "learning_rate must be a number, got False"),
        ({"offset": math.nan}, "offset must be a finite number, got nan"),
        ({"offset": -math.inf}, "offset must be a finite number, got -inf"),
        ({"offset": 10**400}, "offset must be a finite number, got 1" + "0" * 76 + "..."),
        ({"alpha": "atuo"}, "alpha must be a number or auto, got 'atuo'; did you mean auto?"),
        ({"alpha": -1}, "alpha must be >= 0 or auto, got -1"),
        ({"hidden_sizes": 64}, "hidden_sizes must be a list of integers, got 64"),
        ({"hidden_sizes": [64, "a"]}, "hidden_sizes must be a list of integers, got [64, 'a']"),
        ({"hidden_sizes": [64, 0]}, "hidden_sizes must be >= 1 in every entry, got [64, 0]"),
        ({"frame_size": [84]}, "frame_size must be a list of 2 integers, got [84]"),
        ({"tags": "abc"}, "tags must be a list of strings, got 'abc'"),
        ({"dueling": "yes"}, "dueling must be true or false, got 'yes'"),
        ({"dueling": 1}, "dueling must be true or false, got 1"),
        ({"limit": 0}, "limit must be >= 1 or null, got 0"),
        ({"limit": "x"}, "limit must be an integer or null, got 'x'"),
        ({"mode": "men"}, "mode must be one of mean, sample, got 'men'; did you mean mean?"),
        ({"kind": "expart"}, "kind must be one of random, expert, got 'expart'; did you mean expert?"),
        ({"kind": 3}, "kind must be one of random, expert, got 3"),
        ({"folder": 3}, "folder must be a path, got 3"),
        ({"folder": "a\0b"}, "folder must be a path, got 'a\\x00b'"),
        ({"extra": [1]}, "extra must be a mapping, got [1]"),
        ({"extra": {1: 2}}, "extra must be a mapping with text keys, got {1: 2}"),
    ],
)
def test_refusal_says_what_the_value_must_be(values: dict[str, Any], message: str) -> None:
    assert message_for(**values) == message


def test_values_are_converted_to_the_annotated_type() -> None:
    settings = parse(
        Settings,
        {"name": "x", "subset_size": 1e1, "learning_rate": 1, "alpha": 0, "hidden_sizes": [], "frame_size": [1, 2.0]}
        | {"tags": ["a"], "limit": 3, "mode": "sample", "folder": "a/b", "extra": {"b": None}},
    )
    assert settings == Settings(
        "x", 1.0, 10, 10, 0.0, 0.0, (), (1, 2), ("a",), False, 3, "sample", "random", Path("a/b"), {"b": None}
    )
    assert [type(settings.subset_size), type(settings.learning_rate), type(settings.alpha)] == [int, float, float]
    assert type(settings.frame_size[1]) is int


def test_plain_numbers_are_recognised_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks against the abstract classes of numbers are slow, and most numbers are plain."""

    class Never(type):
        def __instancecheck__(cls, value: Any) -> bool:
            raise AssertionError(value)

    parse(Settings, {"name": "x", "limit": np.int64(3), "learning_rate": Fraction(1, 2)})
    for name in ("Integral", "Real"):
        monkeypatch.setattr(conversion, name, Never("Number", (), {}))
    settings = parse(Settings, {"name": "x", "subset_size": 3, "learning_rate": 2, "offset": 0.5, "limit": 2.0})
    assert (settings.subset_size, settings.learning_rate, settings.offset, settings.limit) == (3, 2.0, 0.5, 2)
    for limit in (2**63, -(2**63), math.inf, math.nan, "3", 2.5, True):
        with pytest.raises(ConfigError, match="limit must be "):
            parse(Settings, {"name": "x", "limit": limit})


def test_only_wrong_values_cost_a_description(monkeypatch: pytest.MonkeyPatch) -> None:
    described: list[Any] = []
    monkeypatch.setattr(fields, "describe", lambda hint: described.append(hint) or "null")
    assert parse(Settings, {"name": "x", "alpha": 0.5, "limit": 3}).limit == 3 and not described
    assert message_for(limit=0) == "limit must be >= 1 or null, got 0" and described


def test_constructor_checks_and_converts_like_parse() -> None:
    assert Settings("x", hidden_sizes=[8]).hidden_sizes == (8,)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^subset_size must be >= 1, got 0$"):
        Settings("x", subset_size=0)
    with pytest.raises(ConfigError) as caught:
        Settings("x", subset_size=0, offset=math.nan)
    assert str(caught.value) == "subset_size must be >= 1, got 0\noffset must be a finite number, got nan"


def test_all_problems_are_collected_with_their_paths() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Settings, {"gama": 1, "subset_size": 0, "dueling": "on"}, prefix="algo_kwargs")
    assert caught.value.problems == [
        Problem(("algo_kwargs", "gama"), "unknown key 'gama'"),
        Problem(("algo_kwargs", "name"), "name is required"),
        Problem(("algo_kwargs", "subset_size"), "subset_size must be >= 1, got 0"),
        Problem(("algo_kwargs", "dueling"), "dueling must be true or false, got 'on'"),
    ]


def test_rule_between_fields_knows_its_path() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Settings, {"name": "x", "subset_size": 3, "num_critics": 2}, prefix="algo_kwargs")
    problem = Problem(("algo_kwargs", "subset_size"), "subset_size must be <= num_critics (2)")
    assert caught.value.problems == [problem]


def test_parse_refuses_what_is_not_a_mapping() -> None:
    with pytest.raises(ConfigError, match=r"^algo_kwargs must be a mapping, got 5$"):
        parse(Settings, 5, prefix="algo_kwargs")  # type: ignore[arg-type]


def test_mutable_default_is_not_shared() -> None:
    Settings("x").extra["a"].append(2)
    assert Settings("y").extra == {"a": [1]}


def test_subclass_that_changes_a_default_keeps_the_condition() -> None:
    @dataclass(frozen=True)
    class Variant(Settings):
        subset_size: int = 4

    assert Variant("x").subset_size == 4
    with pytest.raises(ValueError, match="subset_size must be >= 1"):
        Variant("x", subset_size=0)


@pytest.mark.parametrize(
    ("condition", "text", "good", "bad"),
    [
        (at_least(1), ">= 1", [1, 1.5, 10**30], [0, 0.99]),
        (above(0), "> 0", [1e-300], [0, -1]),
        (closed_interval(0, 1), "in [0, 1]", [0, 1], [-0.1, 1.1]),
        (open_interval(0, 1), "in (0, 1)", [0.5], [0, 1]),
        (left_open_interval(0, 1), "in (0, 1]", [1], [0]),
        (right_open_interval(0, 1), "in [0, 1)", [0], [1]),
    ],
)
def test_numeric_conditions(condition: Condition, text: str, good: list[float], bad: list[float]) -> None:
    assert condition.text == text
    assert all(condition.holds(value) for value in good)
    assert not any(condition.holds(value) for value in [*bad, math.nan, math.inf, -math.inf, "1", None, True, [1]])


def test_one_of() -> None:
    condition = one_of("a", "b")
    assert (condition.text, condition.holds("a"), condition.holds("c"), condition.holds([])) == (
        "one of a, b",
        True,
        False,
        False,
    )


def test_nearest_word() -> None:
    assert nearest("SAC", ["sac", "td3"]) == "sac"
    assert nearest("redqq", ["redq", "dqn"]) == "redq"
    assert nearest("xyz", ["redq"]) is None
    assert did_you_mean("redqq", ["redq"]) == "; did you mean redq?"
    assert did_you_mean("xyz", ["redq"]) == ""


def test_require_and_errors() -> None:
    require(True, "tau", "<= 1")
    with pytest.raises(UserError, match=r"^tau must be <= 1$") as caught:
        require(False, "tau", "<= 1")
    assert caught.value.field_name == "tau"
    error = pickle.loads(pickle.dumps(ConfigError([Problem(("a",), "one"), Problem((), "two")])))
    assert (error.problems[0].path, str(error)) == (("a",), "one\ntwo")


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError


WEIRD: list[Any] = [
    None,
    True,
    -1,
    0,
    2.5,
    math.nan,
    math.inf,
    10**5000,
    "",
    "x" * 100_000,
    "a\nb",
    b"x",
    [],
    [[]],
    {},
    {1: 2},
]
WEIRD += [{"a": {}}, (), {1}, object(), Unprintable(), 1j, range(3), print]


@pytest.mark.parametrize("name", [*Settings.__dataclass_fields__, "nonsense", "", 7, None])
def test_weird_values_give_user_errors_of_one_short_line(name: Any) -> None:
    for value in WEIRD:
        try:
            parse(Settings, {"name": "x", name: value})
        except UserError as error:
            assert len(str(error).splitlines()) == 1
            assert len(str(error)) < 200


def test_shown_is_one_short_line() -> None:
    assert shown("a\nb") == "'a\\nb'"
    assert shown(Unprintable()) == "<Unprintable>"
    assert len(shown("x" * 1000)) == 80
