"""Validates a config against its algorithm, environment and checkpoint, before anything is built."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from functools import partial
from typing import Any

import torch

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.checkpoint.read import Checkpoint
from rl_training.config.fields import parse
from rl_training.config.foreign_names import explain_unknown
from rl_training.config.settings import TrainSettings
from rl_training.config.train_config import FIELD_NAMES, TrainConfig, located
from rl_training.config.yaml_loading import LoadedYaml, plain_values
from rl_training.core.checks import ConfigError, Note, Problem, UserError, require, shown
from rl_training.core.specs import KIND_NAMES, EnvSpec
from rl_training.data.datasets.memory import Dataset, check_dataset
from rl_training.envs.host.wrappers import image_hint, image_wrapper, parse_wrappers, wrappers_with_defaults
from rl_training.envs.spaces import ActionCodec, ObservationCodec, space_to_dict
from rl_training.files.atomic import finite
from rl_training.models.layers import BatchNorm
from rl_training.models.own import layers_of


def parse_settings(config: TrainConfig, source: LoadedYaml | None = None) -> tuple[type[Learner], TrainSettings]:
    """The learner class and its settings; reports all problems with settings and wrappers, with file and line."""
    cls, problems = learner_class_or_problem(config.algo)
    settings, found = read_settings(cls, config.algo_kwargs, config.env_kwargs)
    if cls is None or settings is None or problems or found:
        raise located([*problems, *found], source)
    return cls, settings


def learner_class_or_problem(algo: Any) -> tuple[type[Learner] | None, list[Problem]]:
    """The learner class of an algorithm, or the problem with its name."""
    try:
        return learner_class(algo), []
    except UserError as error:
        return None, [Problem(("algo",), str(error))]


def setting_names(cls: type[Learner]) -> tuple[str, ...]:
    """The names of an algorithm's settings."""
    return tuple(field.name for field in fields(cls.settings_type) if field.init)


def read_settings(
    cls: type[Learner] | None, algo_kwargs: Mapping[str, Any], env_kwargs: Mapping[str, Any]
) -> tuple[TrainSettings | None, list[Problem]]:
    """The algorithm's settings if they are valid, and the problems with settings and wrappers."""
    settings, problems = None, list[Problem]()
    try:
        if cls is not None:
            names = setting_names(cls)
            explain = partial(explain_unknown, fields=FIELD_NAMES, settings=names, algo=cls.name, in_settings=True)
            settings = parse(cls.settings_type, algo_kwargs, "algo_kwargs", explain)
    except ConfigError as error:
        problems += error.problems
    try:
        parse_wrappers(env_kwargs.get("wrappers"))
    except ConfigError as error:
        problems += error.problems
    return settings, problems


def with_task_defaults(config: TrainConfig) -> tuple[TrainConfig, type[Learner], TrainSettings]:
    """The config of a new run, completed with the settings of the algorithm's authors for its task.

    It has a value for every setting, so that later changes of defaults do not affect the run.
    """
    cls, settings = parse_settings(config)
    chosen = cls.task_settings(config.env_id, config.algo_kwargs)
    if chosen != config.algo_kwargs:
        config = replace(config, algo_kwargs=chosen)
        cls, settings = parse_settings(config)
    if settings.uses_environment and not cls.learns_online:
        raise UserError(f"offline_steps must be null for {cls.name}: it learns nothing from its own transitions")
    length, horizon = settings.offline_updates or config.total_timesteps, config.schedule_steps
    if horizon is not None and horizon < length:
        what = "offline_steps" if settings.offline_updates else "total_timesteps"
        message = f"schedule_steps must be >= {what} ({length}), got {horizon}: schedules would end before the run"
        raise UserError(message, field_name="schedule_steps")
    fitted = settings.for_run(config.total_timesteps, config.num_envs)
    if fitted is not settings:
        warnings.warn(_shortened(config, settings, fitted), Note, stacklevel=2)
    return filled(config, fitted), cls, fitted


def _shortened(config: TrainConfig, given: TrainSettings, used: TrainSettings) -> str:
    """The notice of a run that is shorter than its settings expect."""
    before, after = asdict(given), asdict(used)
    changes = [f"{name} {before[name]} -> {value}" for name, value in after.items() if before[name] != value]
    total = f"total_timesteps ({config.total_timesteps})"
    return f"{total} is less than a rollout, which is shortened for this run and its continuation: {', '.join(changes)}"


def with_dataset(config: TrainConfig, dataset: Dataset | None) -> TrainConfig:
    """The config of a run on a dataset in memory, which replaces a generated one; rejects invalid combinations."""
    if dataset is None:
        return config
    check_dataset(dataset)
    if not learner_class(config.algo).offline:
        use = ", ".join(name for name in algorithm_names() if learner_class(name).offline)
        raise UserError(f"dataset must not be given: {config.algo} does not learn from a dataset; use {use}")
    if config.algo_kwargs.get("dataset_path") is not None:
        raise UserError("dataset and dataset_path must not both be given")
    settings = {name: value for name, value in config.algo_kwargs.items() if name != "dataset_agent"}
    return replace(config, algo_kwargs={**settings, "dataset_kind": "memory"})


def filled(config: TrainConfig, settings: TrainSettings) -> TrainConfig:
    """The config with a value for every setting."""
    env_kwargs = dict(config.env_kwargs)
    if env_kwargs.get("wrappers") is not None:
        env_kwargs["wrappers"] = wrappers_with_defaults(env_kwargs["wrappers"])
    plain = plain_values({"env_kwargs": env_kwargs})
    if finite(plain) != plain:  # checkpoints are JSON: the run would end at its first
        raise UserError("env_kwargs must hold no NaN or infinity, which cannot be saved", field_name="env_kwargs")
    given = {field.name for field in fields(settings) if field.init}
    values = {name: value for name, value in asdict(settings).items() if name in given}
    return replace(
        config,
        algo_kwargs=plain_values({"algo_kwargs": values})["algo_kwargs"],
        env_kwargs=env_kwargs,
        eval_interval=config.steps_between_evaluations,
    )


def check_compatible(cls: type[Learner], spec: EnvSpec, env_id: str, settings: TrainSettings) -> int:
    """Reject an environment that the algorithm does not support. Returns the number of weights."""
    others = [learner_class(name) for name in algorithm_names()]
    if not cls.supports_actions(spec):
        needs = _kinds(cls.actions) if spec.action.bounded else f"bounded {_kinds(cls.actions)}"
        use = _names(other for other in others if other.supports_actions(spec)) or "; no algorithm here takes them"
        raise UserError(f"{cls.name} needs {needs} actions; {env_id} has {spec.action.space_name}{use}")
    if spec.observation.mask and not cls.takes_masks:
        use = _names(other for other in others if other.supports(spec))
        raise UserError(f"{cls.name} takes no action masks, which are in the observations of {env_id}{use}")
    if not cls.supports(spec):
        use = _names(other for other in others if other.supports(spec)) + image_hint(env_id, cls.observations)
        seen = spec.observation.without_mask()
        gives = f"{_kinds([seen.kind])} of shape {seen.shape}"
        raise UserError(f"{cls.name} takes {_kinds(cls.observations)}; {env_id} gives {gives}{use}")
    wrong = spec.observation.channels_last
    if wrong is not None:
        name, shape = wrong
        fix = f"move the last axis of entry {name!r} to the front"
        fix = fix if name else f"{image_wrapper(env_id)} gives them right"
        raise UserError(f"images must be (channels, height, width); {env_id} gives {shape}, channels last; {fix}")
    settings.check_observation(spec.observation, env_id)
    try:
        with torch.device("meta"):  # nothing is allocated, and the network checks its sizes
            model = cls.build_model(spec, settings)
        has_batch_norm = any(isinstance(one, BatchNorm) for one in layers_of(model))
        require(settings.batch_size != 1 or not has_batch_norm, "batch_size", ">= 2 with batch normalisation, got 1")
        return sum(weight.numel() for weight in model.parameters())
    except (RuntimeError, OverflowError) as error:  # sizes beyond any machine
        raise UserError(f"networks of these sizes cannot be made: {str(error).partition(chr(10))[0]}") from error


def _kinds(kinds: Iterable[str]) -> str:
    return " or ".join(KIND_NAMES[kind] for kind in kinds)


def _names(classes: Iterable[type[Learner]]) -> str:
    found = ", ".join(cls.name for cls in classes)
    return f"; use {found}" if found else ""


def check_same_spaces(
    checkpoint: Checkpoint, observation: ObservationCodec, action: ActionCodec, any_bounds: bool = False
) -> None:
    """Reject a checkpoint whose observation or action space is not that of the environment or dataset.

    With `any_bounds`, bounds of vectors may differ: a dataset has none, its environment does.
    """
    codecs: dict[str, Any] = {"observation_space": observation, "action_space": action}
    for name, codec in codecs.items():
        before, now = checkpoint.state[name], space_to_dict(codec.space)
        if any_bounds and name == "observation_space" and observation.same_but_for_bounds(before):
            continue
        if before != now:
            changed = [f"{key} {before.get(key)} -> {now.get(key)}" for key in now if before.get(key) != now[key]]
            raise UserError(f"{name} has changed since the checkpoint: {', '.join(changed)}")
    mask = checkpoint.state.get("action_mask", 0)
    if mask != observation.mask:
        raise UserError(f"action_mask has changed since the checkpoint: {shown(mask)} -> {observation.mask} flags")
