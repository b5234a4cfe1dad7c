"""Loads configs from files, the package and the command line, and validates them completely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.config.foreign_names import explain_unknown
from rl_training.config.overrides import Assignment, assign, parse_overrides
from rl_training.config.train_config import (
    FIELD_NAMES,
    NO_ENVIRONMENT,
    TrainConfig,
    config_from_dict,
    located,
)
from rl_training.config.yaml_loading import LoadedYaml, load_yaml
from rl_training.core.assets import ASSETS, find_packaged_asset, packaged_configs
from rl_training.core.checks import ConfigError, Problem, UserError, did_you_mean


def load_config(path: str | Path, overrides: Sequence[str | Assignment] = (), **changes: Any) -> TrainConfig:
    """Load a config file, or a packaged one such as `configs/dqn/cartpole.yaml` from any directory."""
    found = Path(path)
    if not found.exists():
        packaged = find_packaged_asset(path)
        if packaged is None:
            names = [str(one.relative_to(ASSETS)) for one in packaged_configs()]
            raise UserError(f"{path}: no such config{did_you_mean(str(path), names)}")
        found = packaged
    source = load_yaml(found)
    return build_config(source.values, overrides, changes, source)


def default_config(
    algo: str, env_id: str | None, overrides: Sequence[str | Assignment] = (), **changes: Any
) -> TrainConfig:
    """The packaged config for this algorithm and environment if there is one, else the algorithm's defaults.

    Without an environment, `overrides` must name a dataset file.
    """
    if env_id is None:
        return build_config({"algo": algo}, overrides, changes, None)
    for path in packaged_configs():
        if path.parent.name == algo:
            source = load_yaml(path)
            if source.values.get("env_id") == env_id:
                return build_config(source.values, overrides, changes, source)
    return build_config({"algo": algo, "env_id": env_id}, overrides, changes, None)


def build_config(
    values: Mapping[str, Any],
    overrides: Sequence[str | Assignment],
    changes: Mapping[str, Any],
    source: LoadedYaml | None,
) -> TrainConfig:
    """The config of `values` with the command line's `changes` and `overrides`; reports all problems at once."""
    from rl_training.run import validate  # imports torch, which `--help` does not need

    merged = {**values, **{name: value for name, value in changes.items() if value is not None}}
    if changes.get("seed") is not None and changes.get("seeds") is None:
        merged.pop("seeds", None)
    assignments, problems = parse_overrides(overrides)
    algo = next((one.value for one in reversed(assignments) if one.keys == ("algo",)), merged.get("algo"))
    cls, unknown_algo = validate.learner_class_or_problem(algo) if isinstance(algo, str) and algo else (None, [])
    names = validate.setting_names(cls) if cls is not None else None
    assignments = [_in_section(one, names or ()) for one in assignments]
    over = assign({}, assignments)[0].get("algo_kwargs")
    if cls is not None and isinstance(over, Mapping) and isinstance(merged.get("algo_kwargs"), Mapping):
        merged["algo_kwargs"] = cls.drop_replaced(merged["algo_kwargs"], over)
    merged, conflicts = assign(merged, assignments)
    problems += conflicts
    if "env_id" not in merged and cls is not None and cls.offline and _needs_no_environment(merged.get("algo_kwargs")):
        merged["env_id"] = NO_ENVIRONMENT

    explain = partial(explain_unknown, fields=FIELD_NAMES, settings=names, algo=str(algo), in_settings=False)
    given_by_user = source is None or "env_id" in changes or any(one.keys == ("env_id",) for one in assignments)
    found: list[Problem] = unknown_algo
    try:
        config = config_from_dict(merged, allow_module_env=given_by_user, explain=explain)
    except ConfigError as error:
        found = [*found, *error.problems]
    sections = [merged.get(name) for name in ("algo_kwargs", "env_kwargs")]
    kwargs = [one if isinstance(one, Mapping) else {} for one in sections]
    found = [*found, *validate.read_settings(cls, *kwargs)[1]]
    if problems or found:
        origin = source.with_values(merged) if source is not None else None
        raise ConfigError([*problems, *located(found, origin).problems])
    return config


def _needs_no_environment(algo_kwargs: Any) -> bool:
    """Whether an offline algorithm with these settings needs only a dataset file."""
    given = algo_kwargs if isinstance(algo_kwargs, Mapping) else {}
    return given.get("dataset_path") is not None and given.get("offline_steps") is None


def _in_section(one: Assignment, settings: Sequence[str]) -> Assignment:
    """`gamma=0.98` as `algo_kwargs.gamma=0.98`, if it is a setting of the algorithm and not a field of the config."""
    if one.keys[0] in FIELD_NAMES or one.keys[0] not in settings:
        return one
    return replace(one, keys=("algo_kwargs", *one.keys))
