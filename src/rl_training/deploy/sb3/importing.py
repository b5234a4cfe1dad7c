"""Makes an agent of a model file of Stable-Baselines3, with predictions equal to the original's."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import OBSERVATION_LIMIT
from rl_training.algorithms.normalizer import GROUP
from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError, shown
from rl_training.deploy.sb3.mapping import POLICIES, SUPPORTED, Imported
from rl_training.deploy.sb3.reading import SavedModel, read_model
from rl_training.deploy.sb3.statistics import read_statistics
from rl_training.engine.engine import MAX_COUNT
from rl_training.envs.host.factory import EnvFactory, env_name, env_source, split_env
from rl_training.envs.spaces import ActionCodec, ObservationCodec, env_spec, make_codecs
from rl_training.run.agent import Agent

# Settings with the same meaning and name in both libraries, or another name here.
SAME_SETTINGS = {"gamma": "gamma", "tau": "tau", "learning_rate": "learning_rate", "batch_size": "batch_size"}


def import_sb3(
    path: str | Path,
    env: str | EnvFactory,
    normalization: str | Path | None = None,
    env_kwargs: dict[str, Any] | None = None,
) -> Agent:
    """The agent of a model file (SAC, TD3, DQN, PPO, A2C; TQC and QR-DQN of sb3-contrib) with a dense policy.

    `env` gives the spaces, which are pickled in the file. `normalization`: an .npz file with the statistics of
    VecNormalize. Nothing in the files is executed.
    """
    model = read_model(Path(path))
    if model.policy_module not in POLICIES:
        module = shown(model.policy_module)
        raise UserError(f"{model.path}: a policy of {module} is not supported; supported: {SUPPORTED}")
    model.check_extractor()
    activation, rule = POLICIES[model.policy_module]
    env_id, factory = split_env(env)
    base = TrainConfig(algo="ppo", env_id=env_name(env), env_kwargs=env_kwargs or {})
    codecs = _codecs(model, env_source(base, env_id, factory))
    found = rule(model, codecs[1])
    model.check_all_taken()
    settings = _settings(model, found, activation, normalization is not None)
    config = TrainConfig(
        algo=found.algo, env_id=env_name(env), env_kwargs=env_kwargs or {}, algo_kwargs=settings, seed=_seed(model)
    )
    return _build(model, config, found, codecs, None if normalization is None else Path(normalization))


def _codecs(model: SavedModel, source: Any) -> tuple[ObservationCodec, ActionCodec]:
    """The codecs of the environment's spaces; images and Dicts have other policies there."""
    env = source.make()
    try:
        codecs = make_codecs(env.observation_space, env.action_space, masked=False)
    finally:
        env.close()
    if codecs[0].is_tree or codecs[0].spec.kind != "vector":
        raise UserError(f"{model.path}: only dense policies on vectors are supported, not {codecs[0].spec}")
    return codecs


def _seed(model: SavedModel) -> int:
    found = model.values.get("seed")
    return found if isinstance(found, int) and 0 <= found < 2**31 else 0


def _steps(model: SavedModel) -> int:
    found = model.values.get("num_timesteps", 0)
    if not isinstance(found, int):  # a number of numpy is pickled
        return 0
    if not 0 <= found < MAX_COUNT:
        raise UserError(f"{model.path}: num_timesteps must be >= 0 and < {MAX_COUNT}, got {shown(found)}")
    return found


def _settings(model: SavedModel, found: Imported, default: str, normalized: bool) -> dict[str, Any]:
    """The settings of the learner: those that make its networks, and a few of training that mean the same."""
    network = {**found.settings.get("network", {}), "activation": model.activation(default)}
    settings: dict[str, Any] = {**found.settings, "network": network}
    if normalized:
        settings["normalize_observations"] = True
    names = {one.name for one in fields(learner_class(found.algo).settings_type) if one.init}
    for theirs, ours in SAME_SETTINGS.items():
        value = model.values.get(theirs)
        if ours in names and isinstance(value, (int, float)) and not isinstance(value, bool):
            settings[ours] = value
    return settings


def _build(
    model: SavedModel,
    config: TrainConfig,
    found: Imported,
    codecs: tuple[ObservationCodec, ActionCodec],
    normalization: Path | None,
) -> Agent:
    cls, spec = learner_class(config.algo), env_spec(*codecs)
    if not cls.supports(spec):
        raise UserError(f"{model.path}: a {config.algo} agent does not fit {spec} of {config.env_id}")
    parameters: dict[str, Tensor] = dict(found.parameters)
    for name, one in parameters.items():
        # Before networks are made of the file's layers and the environment's observations.
        if name.endswith(".layers.0.weight") and one.shape[1] < spec.observation.size:
            raise UserError(
                f"{model.path}: its weights do not fit {config.env_id}: {name} takes {one.shape[1]} inputs, "
                f"an observation has {spec.observation.size}"
            )
    learner = cls.create(spec, parse(cls.settings_type, config.algo_kwargs), [config.seed])
    count = None
    if normalization is not None:
        statistics = read_statistics(normalization, spec.observation.size, OBSERVATION_LIMIT)
        parameters[f"{GROUP}.mean"] = torch.from_numpy(statistics.mean).float()
        parameters[f"{GROUP}.scale"] = torch.from_numpy(statistics.scale).float()
        count = statistics.count
    mine = learner.seed_parameters(0)
    missing = [
        name for name in mine if name not in parameters and name.partition(".")[0] not in ("temperature", "running")
    ]
    wrong = [name for name, one in parameters.items() if name not in mine or mine[name].shape != one.shape]
    if missing or wrong:
        name = (wrong or missing)[0]
        shapes = [tuple(one[name].shape) if name in one else None for one in (parameters, mine)]
        raise UserError(
            f"{model.path}: its weights do not fit {config.env_id}: {name} is {shapes[0]}, must be {shapes[1]}"
        )
    learner.load_seed_parameters(0, parameters)
    learner.copy_targets()
    if count is not None:
        learner.set_observation_count(count)
    return Agent(config, learner, *codecs, step=_steps(model))
