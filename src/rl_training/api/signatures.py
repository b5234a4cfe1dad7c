"""The signature and docstring of a managed class, made from its settings and the fields of the config when read."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import MISSING
from typing import Any, Generic, TypeVar

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import learner_class
from rl_training.config.meanings import FieldMeaning, describe, source_of_defaults
from rl_training.config.train_config import TrainConfig
from rl_training.data.datasets.memory import Dataset
from rl_training.envs.host.factory import EnvFactory

Made = TypeVar("Made")
POSITIONAL = ("algo", "env_id", "algo_kwargs")  # fields of the config that are no keywords of a managed class
ENV = "an environment's id, a function that makes one, or a `TrainConfig`"
DATASET = "a mapping of arrays by name or a `TransitionDataset`, with actions in the environment's units"
WIDTH = 100


class MadeWhenRead(Generic[Made]):
    """An attribute of a managed class that is made from its algorithm when it is read."""

    def __init__(self, make: Callable[[str], Made]) -> None:
        self._make = make

    def __get__(self, instance: Any, owner: type[Any]) -> Made:
        return self._make(owner.algo_name)


def keywords(algo: str) -> dict[str, FieldMeaning]:
    """The keywords of a managed class: fields of the config, then settings of its algorithm."""
    return {**config_fields(), **describe(learner_class(algo).settings_type)}


def config_fields() -> dict[str, FieldMeaning]:
    """The fields of the config that are keywords of every managed class."""
    return {name: one for name, one in describe(TrainConfig).items() if name not in POSITIONAL}


def signature(algo: str) -> inspect.Signature:
    """`env` and every keyword with its type and default."""
    parameters = [inspect.Parameter("env", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=ENV_TYPE)]
    if learner_class(algo).offline:
        parameters.append(_keyword("dataset", Dataset | None, None))
    parameters += [_keyword(one.name, one.type, one.default) for one in keywords(algo).values()]
    return inspect.Signature(parameters)


ENV_TYPE = str | TrainConfig | EnvFactory


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is MISSING else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=value)


def docstring(algo: str) -> str:
    """The title of the algorithm, and every keyword with its type, default and meaning."""
    learner = learner_class(algo)
    lines = [f"{learner.title}.", "", "Args:", _entry(f"env: {ENV}")]
    lines += [_entry(f"dataset: {DATASET}")] if learner.offline else []
    lines += [*_entries(config_fields().values()), "", *_settings_head(learner)]
    lines += _entries(describe(learner.settings_type).values())
    return "\n".join(lines) + "\n"


def _settings_head(learner: type[Learner]) -> list[str]:
    source = source_of_defaults(learner.settings_type)
    text = f"Settings of {learner.name}" + (f". Defaults: {source}" if source else "")
    return textwrap.wrap(f"{text}:", WIDTH)


def _entries(described: Iterable[FieldMeaning]) -> list[str]:
    entries = ((f"{one.name} ({one.type_text}, default {one.default_text})", one.explanation) for one in described)
    return [_entry(f"{head}: {meaning}") for head, meaning in entries]


def _entry(text: str) -> str:
    return textwrap.fill(text.rstrip(" :"), WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8)
