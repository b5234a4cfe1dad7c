"""What the runs of a study need: memory and disk of each, checked against its environment before anything starts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from rl_training.algorithms.base import Learner
from rl_training.config.settings import ReplaySettings, RolloutSettings, TrainSettings
from rl_training.config.train_config import NO_ENVIRONMENT, TrainConfig
from rl_training.core.checks import Note, Problem, UserError
from rl_training.core.specs import EnvSpec
from rl_training.data.replay.frames import bytes_needed
from rl_training.data.rollout import rollout_bytes
from rl_training.envs.device.registry import device_environment
from rl_training.envs.host.conformance import Takes, check_spaces
from rl_training.envs.host.factory import EnvSource
from rl_training.files.atomic import to_json
from rl_training.run.capacity import BYTES_PER_WEIGHT, replay_capacity
from rl_training.run.validate import check_compatible, with_task_defaults
from rl_training.studies.planned_runs import PlannedRun

PROCESS_BYTES = 600 * 2**20  # of a process that has imported torch and an environment
ARTIFACT_BYTES = 2 * 2**20  # a video, a report and logs
BYTES_PER_SAVED_WEIGHT = 4 * 4  # the weight, its target and Adam's two moments


@dataclass(frozen=True)
class Needs:
    """Bytes that one run needs."""

    memory: int
    disk: int


def needs_of(runs: Sequence[PlannedRun]) -> tuple[dict[str, Needs], list[Problem]]:
    """The needs of every run by name, and a problem for each run that its environment does not fit."""
    specs: dict[bytes, EnvSpec | UserError] = {}
    found: dict[str, Needs] = {}
    problems: list[Problem] = []
    for run in runs:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Note)  # the run itself reports them
                config, cls, settings = with_task_defaults(run.config)
            spec = _spec(config, cls, specs)
            found[run.name] = _needs(config, cls, settings, spec)
        except UserError as error:
            problems.append(Problem(("environments",), f"{run.config.algo} {run.config.env_id}: {error}"))
    return found, problems


def _spec(config: TrainConfig, cls: type[Learner], known: dict[bytes, EnvSpec | UserError]) -> EnvSpec | None:
    """The spec of a run's environment, made once for all runs; None for a dataset alone."""
    if config.env_id == NO_ENVIRONMENT:
        return None
    on_device = device_environment(config.env_id)
    if on_device is not None:
        return on_device.spec
    takes = Takes(cls.takes_masks, cls.takes_unbounded_actions)
    key = to_json([config.env_id, config.to_dict()["env_kwargs"], takes.masks, takes.unbounded_actions])
    if key not in known:
        try:
            known[key] = check_spaces(EnvSource(config.env_id, dict(config.env_kwargs)), takes)
        except UserError as error:
            known[key] = error
    spec = known[key]
    if isinstance(spec, UserError):
        raise spec
    return spec


def _needs(config: TrainConfig, cls: type[Learner], settings: TrainSettings, spec: EnvSpec | None) -> Needs:
    if spec is None:
        return Needs(PROCESS_BYTES, ARTIFACT_BYTES)
    weights = check_compatible(cls, spec, config.env_id, settings) * len(config.seed_list)
    seeds, data = len(config.seed_list), 0
    if isinstance(settings, ReplaySettings) and settings.uses_environment:
        capacity = replay_capacity(config, settings)
        data = bytes_needed(spec, capacity=capacity, num_envs=config.num_envs, seeds=seeds)
    if isinstance(settings, RolloutSettings):
        data = seeds * rollout_bytes(spec, settings.rollout_steps * config.num_envs)
    saved = (config.keep_checkpoints + 1) * BYTES_PER_SAVED_WEIGHT * weights + 2 * 4 * weights
    return Needs(PROCESS_BYTES + data + BYTES_PER_WEIGHT * weights, ARTIFACT_BYTES + data + saved)
