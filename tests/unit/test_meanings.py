"""What settings mean: the comments beside them, for help, editors, the command line and docs/settings.md."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import inspect
import json
import pydoc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from harness import ROOT

import rl_training
from rl_training import api
from rl_training.algorithms import registry
from rl_training.algorithms.registry import ALGORITHMS, learner_class
from rl_training.algorithms.td3 import TD3, TD3Settings
from rl_training.api import algorithms as managed_classes
from rl_training.api.signatures import keywords
from rl_training.cli.main import main
from rl_training.config import meanings
from rl_training.config.fields import closed_interval, setting
from rl_training.config.meanings import accepted_type, default_text, describe, source_of_defaults, type_text
from rl_training.config.train_config import TrainConfig


@dataclass(frozen=True)
class Base:
    plain: int = 1  # beside it
    # above it,
    # in two lines
    above: float = setting(0.5, closed_interval(0, 1))
    nothing: str = "a"
    both: bool = False  # this one


@dataclass(frozen=True)
class Child(Base):
    # Defaults: a paper,
    # and its code.
    plain: int = 2
    long: dict[str, Any] = dataclasses.field(
        default_factory=dict,
    )  # of several lines

    # not of a field

    own: str = setting("x # not a comment")  # its own


@dataclass(frozen=True)
class MineSettings(TD3Settings):
    # Defaults: my thesis.
    sharpness: float = setting(3.0, closed_interval(0, 9))  # how sharp it is


class Mine(TD3):
    name, title, settings_type = "mine", "My own algorithm", MineSettings


def test_comments_are_found_beside_and_above_fields_the_nearest_class_first() -> None:
    base, child = describe(Base), describe(Child)
    assert {name: one.meaning for name, one in base.items()} == {
        "plain": "beside it", "above": "above it, in two lines", "nothing": "", "both": "this one",
    }  # fmt: skip
    assert child["plain"].meaning == "beside it" and child["plain"].default == 2
    assert child["long"].meaning == "of several lines" and child["own"].meaning == "its own"
    assert [one.source for one in base.values()] == [""] * 4 and source_of_defaults(Base) == ""
    assert {one.source for one in child.values()} == {"a paper, and its code"}
    assert child["above"].allowed == "in [0, 1]" and child["above"].explanation == "above it, in two lines (in [0, 1])"


def test_a_class_without_source_has_no_meanings() -> None:
    made = dataclasses.make_dataclass("Made", [("size", int, 3)], frozen=True)
    assert describe(made)["size"].meaning == "" and describe(made)["size"].default == 3


def test_the_source_of_a_default_is_that_of_the_class_that_sets_it() -> None:
    found = describe(learner_class("tqc").settings_type)
    assert found["tau"].source.startswith("Stable-Baselines3 sac.py")  # set by SAC
    assert found["num_quantiles"].source == found["gamma"].source and "tqc_pytorch" in found["gamma"].source


def test_types_and_defaults_as_text() -> None:
    for hint, text in (
        (float | Literal["auto"], 'float | Literal["auto"]'),
        (tuple[int, ...] | None, "Sequence[int] | None"),
        (Path | tuple[Path, ...] | None, "str | Path | Sequence[str | Path] | None"),
        (dict[str, Any], "Mapping[str, Any]"),
        (bool, "bool"),
        (Callable[[float], float] | None, "Callable[[float], float] | None"),
        (Base | None, "Mapping[str, Any] | None"),
    ):
        assert type_text(accepted_type(hint)) == text
    assert accepted_type(tuple[int, ...]) == Sequence[int]
    assert default_text(Base()) == "{}" and default_text(Base(plain=4)) == "{'plain': 4}"
    values = {(): "()", (1,): "(1,)", "a": '"a"', 3e-4: "0.0003", None: "None", dataclasses.MISSING: "required"}
    assert {value: default_text(value) for value in values} == values and default_text(Path("runs")) == '"runs"'


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_setting_has_a_meaning_and_a_source(algo: str) -> None:
    for one in describe(learner_class(algo).settings_type).values():
        assert one.meaning and one.source, one.name
    assert [one.name for one in describe(TrainConfig).values() if not one.meaning] == []
    assert not set(describe(TrainConfig)) & set(describe(learner_class(algo).settings_type)), "a keyword is either"


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_managed_class_shows_every_keyword(algo: str) -> None:
    cls = api.managed_class(algo)
    shown = inspect.signature(cls).parameters
    expected = {**describe(TrainConfig), **describe(learner_class(algo).settings_type)}
    for name in ("algo", "env_id", "algo_kwargs"):
        del expected[name]
    extra = {"env", "dataset"} if learner_class(algo).offline else {"env"}
    assert set(shown) == {*expected, *extra} and next(iter(shown)) == "env"
    for name, one in expected.items():
        assert shown[name].default == one.default and shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[name].annotation == one.type
    text = " ".join(pydoc.plain(pydoc.render_doc(cls)).replace("|", " ").split())
    for one in expected.values():
        line = f"{one.name} ({one.type_text}, default {one.default_text}): {one.explanation}".replace("|", " ")
        assert " ".join(line.split()) in text, one.name


def test_the_keywords_of_the_signature_are_those_that_are_taken(tmp_path: Path) -> None:
    given = {name: one.default for name, one in inspect.signature(rl_training.SAC).parameters.items() if name != "env"}
    agent = rl_training.SAC("Pendulum-v1", **given)
    assert agent.config.algo_kwargs["gamma"] == 0.99 and agent.config.total_timesteps == 100_000


def test_a_third_party_class_shows_its_settings_too(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    point = importlib.metadata.EntryPoint("mine", f"{__name__}:Mine", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    cls = api.managed_class("mine")
    assert inspect.signature(cls).parameters["sharpness"].default == 3.0
    assert "sharpness (float, default 3.0): how sharp it is (in [0, 9])" in (cls.__doc__ or "")
    assert "Defaults: my thesis" in (cls.__doc__ or "") and keywords("mine")["sharpness"].source == "my thesis"
    assert main(["describe", "mine", "sharpness"]) == 0
    assert "how sharp it is" in capsys.readouterr().out


def test_meanings_are_read_on_first_use_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managed_classes, "_classes", {})
    meanings._described.cache_clear()
    cls = api.managed_class("sac")
    assert meanings._described.cache_info().currsize == 0
    assert cls.__doc__ and meanings._described.cache_info().currsize == 2  # the config's and the algorithm's


# --- the command line and the page ------------------------------------------------------------------------------------
def test_describe_prints_all_settings_or_one(capsys) -> None:
    assert main(["describe", "sac"]) == 0
    text = capsys.readouterr().out
    for name in (*describe(learner_class("sac").settings_type), *describe(TrainConfig)):
        assert f"\n    {name} (" in text
    assert main(["describe", "sac", "gamma"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:5] == [
        "gamma", "type float", "default 0.99", "allowed in [0, 1]", "meaning discount of future rewards",
    ]  # fmt: skip
    assert lines[5].startswith("source Stable-Baselines3")
    assert main(["describe", "sac", "network"]) == 0
    assert 'activation (str) = "ReLU"' in capsys.readouterr().out


def test_describe_as_json(capsys) -> None:
    assert main(["describe", "tqc", "critic_hidden_sizes", "--json"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert (one["default"], one["type"], one["required"]) == ([512, 512, 512], "Sequence[int] | None", False)
    assert main(["describe", "tqc", "--json"]) == 0
    every = json.loads(capsys.readouterr().out)
    assert one in every["settings"] and {"algo", "seed"} <= {field["name"] for field in every["config"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sac", "gama"], "sac has no setting 'gama'; did you mean gamma?"),
        (["sac", "ent_coef"], "sac has no setting 'ent_coef'; here it is alpha"),
        (["saac"], "did you mean sac?"),
    ],
)
def test_describe_answers_unknown_names_with_the_nearest(words: list[str], message: str, capsys) -> None:
    assert main(["describe", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_committed_page_is_what_the_settings_give() -> None:
    spec = importlib.util.spec_from_file_location("settings_page", ROOT / "scripts" / "settings_page.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == module.page(), "run `make docs`"
