"""The file of a study: its typed fields, read with every problem at its line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rl_training.config.fields import Condition, above, at_least, check, parse, setting
from rl_training.config.train_config import MAX_SEEDS, located, parse_seeds
from rl_training.config.yaml_loading import LoadedYaml, load_yaml
from rl_training.core.checks import ConfigError, Problem, require, shown

_is_name = Condition(
    "a name of letters, digits and -_. that starts with a letter or digit",
    lambda value: re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", value) is not None,
)
is_algorithm = Condition("a name", bool)
is_environment = Condition(
    "an id without a module (a file never imports one; register it in a package of Gymnasium's entry points)",
    lambda value: bool(value) and ":" not in value,
)
# Fields of a config that a study decides itself, and where it says so.
DECIDED = {
    "algo": "algorithms", "env_id": "environments", "seed": "seeds", "seeds": "seeds", "run_name": "name",
    "output_dir": "output_dir",
}  # fmt: skip
FileType = TypeVar("FileType", bound="StudyFile")


@dataclass(frozen=True)
class Resources:
    """What one run of a study needs."""

    cpus: int = setting(1, at_least(1))  # cores: threads and environment workers of a run
    gpus: float | None = setting(None, at_least(0))  # share of a GPU; null: a whole one for a run that trains on it
    memory: float | None = setting(None, above(0))  # GiB; null: estimated from the replay and the networks

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class StudyFile:
    """What the files of `sweep` and `tune` share."""

    name: str | None = setting(None, _is_name)  # of the study's folder; null: the name of the file
    output_dir: Path = Path("studies")  # the directory in which that folder is made
    seeds: int | str | tuple[int, ...] = (0,)  # 0-7, or a list
    config: dict[str, Any] = field(default_factory=dict)  # for every run: names as after --set
    resources: Resources = Resources()

    def __post_init__(self) -> None:
        check(self)
        given = self.seeds
        seeds = parse_seeds(str(given)) if isinstance(given, (int, str)) else given
        require(0 < len(seeds) <= MAX_SEEDS, "seeds", f"1 to {MAX_SEEDS} seeds, got {len(seeds)}")
        require(len(set(seeds)) == len(seeds), "seeds", f"distinct, got {shown(list(seeds))}")
        object.__setattr__(self, "seeds", tuple(seeds))
        problems = [
            Problem(("config", name), f"{name} is decided by the study: see {DECIDED[name]}")
            for name in self.config
            if name in DECIDED
        ]
        if problems:
            raise ConfigError(problems)

    @property
    def seed_list(self) -> tuple[int, ...]:
        assert isinstance(self.seeds, tuple)
        return self.seeds


@dataclass(frozen=True, kw_only=True)
class SweepFile(StudyFile):
    """The file of a sweep: algorithms x environments x overrides, with the same seeds for each."""

    algorithms: tuple[str, ...] = setting(must=is_algorithm)
    environments: tuple[str, ...] = setting(must=is_environment)
    overrides: tuple[dict[str, Any], ...] = ()  # blocks whose variants multiply, see `variants.Block`
    exclude: tuple[dict[str, Any], ...] = ()  # conditions of runs that are left out
    seeds_per_run: int | None = setting(None, at_least(1))  # null: all seeds of a run are one program

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("algorithms", "environments"):
            values = getattr(self, name)
            require(len(values) > 0, name, "a list of at least one entry")
            require(len(set(values)) == len(values), name, f"distinct, got {shown(list(values))}")


def load_study(path: str | Path, cls: type[FileType]) -> tuple[FileType | None, LoadedYaml, list[Problem]]:
    """The study of a file, its lines, and its problems so far.

    A field with a problem is left out, so that the rest is checked too; None where it cannot be.
    """
    source = load_yaml(path)
    values, problems = dict(source.values), list[Problem]()
    for _ in range(len(values) + 1):
        try:
            return parse(cls, values), source, problems
        except ConfigError as error:
            problems += [one for one in error.problems if one not in problems]
            wrong = {one.path[0] for one in error.problems if one.path} & values.keys()
            if not wrong:
                break
            values = {name: value for name, value in values.items() if name not in wrong}
    return None, source, _without_consequences(problems, source.values)


def _without_consequences(problems: list[Problem], values: Mapping[str, Any]) -> list[Problem]:
    """The problems less `x is required` for a field that is there, and was only left out for its other problem."""
    return [one for one in problems if not (str(one).endswith(" is required") and one.path[0] in values)]


def study_folder(study: StudyFile, path: str | Path) -> Path:
    """The folder of a study, absolute."""
    return (study.output_dir / (study.name or Path(path).stem)).absolute()


def reject(problems: list[Problem], source: LoadedYaml) -> None:
    """Raise all problems with their file and line, if there are any."""
    if problems:
        by_text = {str(one): one for one in located(problems, source).problems}
        raise ConfigError(by_text.values())
