"""The planned runs of a study, each with a config and a name that follows from it."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_training.config.overrides import Assignment
from rl_training.config.train_config import TrainConfig
from rl_training.config.yaml_loading import LoadedYaml
from rl_training.core.checks import ConfigError, Problem
from rl_training.files.atomic import to_json
from rl_training.run.loading import default_config
from rl_training.studies.study_file import StudyFile, SweepFile
from rl_training.studies.variants import (
    MAX_RUNS,
    Choice,
    PlacedBlock,
    Variant,
    check_conditions,
    combinations,
    holds,
    parse_blocks,
)

LABEL_LENGTH = 80
SECTIONS = ("algo_kwargs", "env_kwargs")  # merged with the packaged config's, not replaced
PLACE = ("output_dir", "run_name")  # where a run is, not what it is


@dataclass(frozen=True)
class PlannedRun:
    """One run of a study. Its name follows from its config: a changed config is another run."""

    name: str
    config: TrainConfig
    changes: tuple[tuple[str, Any], ...] = ()  # its overrides, for people
    title: str = ""  # replaces its description

    @property
    def label(self) -> str:
        """The run in a few words, for the display."""
        if self.title:
            return self.title
        config, seeds = self.config, len(self.config.seed_list)
        words = [config.algo, config.env_id, *(f"{key}={short_value(value)}" for key, value in self.changes)]
        return " ".join([*words, f"x {seeds} seeds" if seeds > 1 else f"seed {config.seed_list[0]}"])


def planned_run(config: TrainConfig, changes: Sequence[tuple[str, Any]], folder: Path) -> PlannedRun:
    """The planned run of a config, in the `runs` of a study's folder."""
    plain = {name: value for name, value in config.to_dict().items() if name not in PLACE}
    digest = hashlib.sha256(to_json(plain)).hexdigest()[:10]
    words = [config.algo, config.env_id, *(f"{key.rpartition('.')[2]}={short_value(value)}" for key, value in changes)]
    readable = re.sub(r"[^A-Za-z0-9._=+-]+", "_", "-".join(words))[:LABEL_LENGTH].rstrip("-_.")
    name = f"{readable}-{digest}"
    return PlannedRun(name, replace(config, output_dir=folder / "runs", run_name=name), tuple(changes))


def short_value(value: Any) -> str:
    """A value in a label."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def assignments(values: dict[str, Any]) -> list[Assignment]:
    """The `config` of a study as overrides: sections entry by entry."""
    found: list[Assignment] = []
    for key, value in values.items():
        if key in SECTIONS and isinstance(value, dict):
            found += [Assignment((key, inner), one) for inner, one in value.items()]
        else:
            found.append(Assignment(tuple(key.split(".")), value))
    return found


def choice_config(
    study: StudyFile, algo: str, env_id: str, choices: Sequence[Choice], seeds: Sequence[int]
) -> TrainConfig:
    """The config of one run: packaged or default, with the study's `config`, then its overrides."""
    over = [Assignment(tuple(one.key.split(".")), one.value) for one in choices]
    return default_config(algo, env_id, [*assignments(study.config), *over], seeds=list(seeds))


def sweep_runs(study: SweepFile, source: LoadedYaml, folder: Path) -> tuple[list[PlannedRun], list[Problem]]:
    """Every run of a sweep, in the order of the file, and the problems of those that cannot be."""
    blocks, problems = parse_blocks(study.overrides)
    facts: dict[str, Sequence[str]] = {"algo": study.algorithms, "env": study.environments}
    facts |= {choice.key: () for block in blocks for variant in block.variants for choice in variant}
    conditions = [((*block.path, "only"), block.only) for block in blocks]
    conditions += [(("exclude", str(index)), one) for index, one in enumerate(study.exclude)]
    if not problems:  # else a condition may name a setting of a block that could not be read
        problems += check_conditions(conditions, facts)
    chosen = list(itertools.islice(_chosen(study, blocks), MAX_RUNS + 1))
    if len(chosen) * len(_chunks(study)) > MAX_RUNS:
        return [], [*problems, Problem(("overrides",), f"the study has more than {MAX_RUNS} runs, the maximum")]
    runs: dict[str, PlannedRun] = {}
    for algo, env_id, variant in chosen:
        found, wrong = _planned_runs(study, algo, env_id, variant, folder)
        problems += wrong
        for run in found:
            if run.name in runs:
                problems.append(Problem(("overrides",), f"the same run twice: {run.label}"))
            runs[run.name] = run
    if not runs and not problems:
        problems.append(Problem(("exclude",), "exclude must leave at least one run"))
    return list(runs.values()), problems


def _chosen(study: SweepFile, blocks: Sequence[PlacedBlock]) -> Iterator[tuple[str, str, Variant]]:
    """Every algorithm, environment and variant that is not excluded."""
    for algo, env_id in itertools.product(study.algorithms, study.environments):
        here = {"algo": algo, "env": env_id}
        for variant in combinations(blocks, here):
            known = {**here, **{choice.key: choice.value for choice in variant}}
            if not any(holds(one, known) for one in study.exclude):
                yield algo, env_id, variant


def _chunks(study: SweepFile) -> list[tuple[int, ...]]:
    """The seeds of each run of one variant."""
    seeds = study.seed_list
    size = study.seeds_per_run or len(seeds)
    return [seeds[start : start + size] for start in range(0, len(seeds), size)]


def _planned_runs(
    study: SweepFile, algo: str, env_id: str, variant: Variant, folder: Path
) -> tuple[list[PlannedRun], list[Problem]]:
    try:
        config = choice_config(study, algo, env_id, variant, study.seed_list)
    except ConfigError as error:
        unknown = [one for one in error.problems if one.path[:1] == ("algo",)]  # whose settings are unknown, too
        return [], [_placed(one, study, algo, env_id, variant) for one in unknown or error.problems]
    changes = [(choice.key, choice.value) for choice in variant]
    return [planned_run(replace(config, seeds=chunk), changes, folder) for chunk in _chunks(study)], []


def _placed(problem: Problem, study: SweepFile, algo: str, env_id: str, variant: Variant) -> Problem:
    """The problem of one run's config at the place of the study that causes it."""
    if problem.path[:1] == ("algo",):
        return Problem(("algorithms", str(study.algorithms.index(algo))), problem.message)
    for choice in variant:
        if _concerns(tuple(choice.key.split(".")), problem.path):
            several = len(study.algorithms) > 1 and "of other algorithms" in problem.message
            hint = f"; `only: {{algo: ...}}` limits it to algorithms that have it (this is {algo})" if several else ""
            return Problem(choice.path, problem.message + hint)
    for one in assignments(study.config):
        if _concerns(one.keys, problem.path):
            in_section = one.keys if one.keys[0] in study.config else (".".join(one.keys),)
            return Problem(("config", *in_section), problem.message)
    where = ("environments", str(study.environments.index(env_id))) if problem.path[:1] == ("env_id",) else ("config",)
    return Problem(where, f"{algo} {env_id}: {problem.message}")


def _concerns(keys: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether an override is the cause of a problem at `path`; a setting is in `algo_kwargs` without being named so."""
    return any(path[: len(one)] == one for one in (keys, ("algo_kwargs", *keys)))
