"""The file of `rl-training tune`: one algorithm, one environment, a search space, an objective and pruning."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.fields import at_least, check, one_of, setting
from rl_training.config.yaml_loading import LoadedYaml
from rl_training.core.checks import ConfigError, Problem, UserError
from rl_training.files.atomic import to_json
from rl_training.studies.planned_runs import assignments, choice_config
from rl_training.studies.search import search_space
from rl_training.studies.space import Dimension
from rl_training.studies.study_file import StudyFile, is_algorithm, is_environment, load_study, reject
from rl_training.studies.variants import Choice

PRUNERS = ("none", "median", "halving")
SAMPLERS = ("tpe", "random")


@dataclass(frozen=True)
class Objective:
    """What is maximised: the interquartile mean of the seeds' returns, less a penalty for their spread."""

    spread_penalty: float = setting(0.0, at_least(0))  # times the standard deviation over the seeds
    evaluations: int = setting(1, at_least(1))  # the last ones of a run, whose returns are averaged

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Pruning:
    """When a trial is stopped early. Every evaluation is a rung, at which it is compared with the other trials."""

    kind: str = setting("median", one_of(*PRUNERS))
    startup_trials: int = setting(5, at_least(0))  # median: trials before the first that may be pruned
    first_rung: int | None = setting(None, at_least(1))  # steps; null: the first evaluation
    reduction_factor: int = setting(3, at_least(2))  # halving: one of so many trials continues from a rung

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True, kw_only=True)
class TuneFile(StudyFile):
    """The file of a tuning study."""

    algo: str = setting(must=is_algorithm)
    env_id: str = setting(must=is_environment)
    trials: int = setting(50, at_least(1))
    search: dict[str, Any] | None = None  # null: the packaged space of the algorithm
    seed: int = setting(0, at_least(0))  # of the sampler, with the number of the trial
    sampler: str = setting("tpe", one_of(*SAMPLERS))
    startup_trials: int = setting(10, at_least(1))  # trials with random values before those of the sampler
    objective: Objective = Objective()
    pruning: Pruning = Pruning()

    def __post_init__(self) -> None:
        super().__post_init__()

    @property
    def space(self) -> dict[str, Dimension]:
        """What is searched: the study's own space, or the packaged one without the settings that `config` fixes."""
        space = search_space(self.algo, self.search)
        fixed = self.fixed if self.search is None else ()
        return {name: dimension for name, dimension in space.items() if name not in fixed}

    @property
    def fixed(self) -> tuple[str, ...]:
        """The settings in `config`, as named in a search space."""
        return tuple(".".join(one.keys).removeprefix("algo_kwargs.") for one in assignments(self.config))

    @property
    def fingerprint(self) -> str:
        """A digest of everything that makes trials comparable."""
        runs = [self.algo, self.env_id, self.config, list(self.seed_list), self.search, vars(self.objective)]
        return hashlib.sha256(to_json(runs)).hexdigest()[:16]


def load_tune(path: str | Path) -> tuple[TuneFile, LoadedYaml]:
    """Read and check the file of a tuning study: every end of every range must give a valid config."""
    study, source, problems = load_study(path, TuneFile)
    if study is not None:
        problems = [*problems, *_space_problems(study)]
    reject(problems, source)
    assert study is not None
    return study, source


def _space_problems(study: TuneFile) -> list[Problem]:
    try:
        base = choice_config(study, study.algo, study.env_id, (), study.seed_list)
    except ConfigError as error:
        return [Problem(("config", *one.path), str(one)) for one in error.problems]
    try:
        space = study.space
    except ConfigError as error:
        return error.problems
    except UserError as error:
        return [Problem(("algo",), str(error))]
    problems: list[Problem] = []
    if not space:
        problems.append(Problem(("search",), "search must have at least one setting"))
    if base.eval_episodes == 0:
        problems.append(Problem(("config",), "eval_episodes must be above 0: trials are compared by evaluations"))
    for name, dimension in space.items():
        if name.removeprefix("algo_kwargs.") in study.fixed:
            problems.append(Problem(("search", name), f"{name} is in config too; leave it out of one of them"))
        for value in dimension.corners():
            try:
                choice_config(study, study.algo, study.env_id, [Choice(name, value, ())], study.seed_list)
            except ConfigError as error:
                problems += [Problem(("search", name), str(one)) for one in error.problems]
                break
    return problems
