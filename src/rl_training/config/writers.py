"""The writers of a config: destinations of metric rows besides metrics.jsonl, with their options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rl_training.config.fields import check, one_of, parse, setting
from rl_training.config.yaml_loading import plain_values
from rl_training.core.checks import ConfigError, Problem, did_you_mean, shown

DEFAULT_PROJECT = "rl-training"


@dataclass(frozen=True)
class CsvOptions:
    """`csv`: a file metrics.csv, without options."""


@dataclass(frozen=True)
class TensorBoardOptions:
    """`tensorboard`: event files, without options."""


@dataclass(frozen=True)
class WandbOptions:
    """`wandb`: one run of Weights & Biases for each seed."""

    project: str = DEFAULT_PROJECT
    entity: str | None = None  # None: the account's default
    group: str | None = None  # None: the name of the run directory
    name: str | None = None  # None: the name of the run directory, with the seed
    mode: str = setting("online", one_of("online", "offline"))

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class MlflowOptions:
    """`mlflow`: one run of MLflow for each seed."""

    tracking_uri: str | None = None  # None: MLFLOW_TRACKING_URI, else mlflow.db in the output directory
    experiment: str = DEFAULT_PROJECT
    name: str | None = None  # None: the name of the run directory, with the seed

    def __post_init__(self) -> None:
        check(self)


WRITERS: dict[str, type[Any]] = {
    "csv": CsvOptions,
    "tensorboard": TensorBoardOptions,
    "wandb": WandbOptions,
    "mlflow": MlflowOptions,
}
_OTHER_NAMES = {"jsonl": "json", "weights_and_biases": "wandb", "w&b": "wandb", "tb": "tensorboard"}


def parse_writers(given: Mapping[str, Any] | Iterable[str]) -> dict[str, dict[str, Any]]:
    """Every option of each named writer; all problems are reported at once."""
    options = dict(given) if isinstance(given, Mapping) else dict.fromkeys(given)
    found: dict[str, dict[str, Any]] = {}
    problems: list[Problem] = []
    for name, values in options.items():
        if name not in WRITERS:
            problems.append(Problem(("writers", name), f"unknown writer {shown(name)}{_hint(name)}"))
            continue
        try:
            parsed = parse(WRITERS[name], {} if values is None else values, f"writers.{name}")
            found[name] = plain_values(asdict(parsed))
        except ConfigError as error:
            problems += [Problem(one.path, f"writer {name}: {one}") for one in error.problems]
    if problems:
        raise ConfigError(problems)
    return found


def _hint(name: str) -> str:
    other = _OTHER_NAMES.get(name.lower(), name)
    if other == "json":
        return "; metrics.jsonl is always written"
    hint = f"; did you mean {other}?" if other in WRITERS else did_you_mean(name, WRITERS)
    return hint or f"; there are {', '.join(WRITERS)}"
