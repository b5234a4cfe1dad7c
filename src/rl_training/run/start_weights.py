"""Starts a new run from a trained agent's weights, which are copied into the run for resuming it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.read import DamagedCheckpoint
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec
from rl_training.files.atomic import replace_file
from rl_training.run.agent import Agent, load_agent

START = "start.safetensors"  # in the run's directory


def resolve_start(config: TrainConfig, agent: Agent | None) -> tuple[TrainConfig, Agent | None]:
    """The config with path, digest and step of the agent file it starts from, and the agent; None: fresh weights.

    `agent` was loaded from a file; without it, the config may name a file.
    """
    if agent is None and config.started_from is None:
        return config, None
    named = config.started_from if agent is None else None
    if named is not None:
        agent = load_agent(named["path"])
    assert agent is not None
    if agent.file is None or agent.path is None:
        raise UserError(f"started_from: {agent.path} is not an agent file; a new run starts from an agent file")
    if agent.config.algo != config.algo:
        raise UserError(f"{agent.path}: holds a {agent.config.algo} agent, not {config.algo}")
    found: dict[str, Any] = {
        "path": str(agent.path.absolute()),
        "sha256": hashlib.sha256(agent.file).hexdigest(),
        "step": agent.step,
    }
    if named is not None and named.get("sha256", found["sha256"]) != found["sha256"]:
        change = f"sha256 {named['sha256'][:16]} -> {found['sha256'][:16]}"
        raise UserError(f"{agent.path}: is another agent than the one that started_from names ({change})")
    return replace(config, started_from=found), agent


def check_start(agent: Agent | None, cls: type[Learner], spec: EnvSpec, settings: Any, env_id: str) -> None:
    """Reject an agent whose weights do not fit a new run, before anything is written."""
    if agent is None:
        return
    if agent.spec != spec:
        raise UserError(f"{agent.path}: the agent was trained on {agent.spec}, {env_id} has {spec}")
    _copy(agent, cls.create(spec, settings, [0]), str(agent.path))


def copy_start(agent: Agent | None, run_dir: Path) -> None:
    """Copy the agent file into the run, before the run's record is written: a recorded run has its weights."""
    if agent is not None and agent.file is not None:
        replace_file(run_dir / START, agent.file)


def load_start(config: TrainConfig, run_dir: Path, learner: Learner) -> None:
    """Load the start weights of a run into a new learner: all groups and statistics, with targets as copies."""
    start = config.started_from
    if start is None:
        return
    path = run_dir / START
    agent = load_agent(path)
    if agent.file is None or hashlib.sha256(agent.file).hexdigest() != start.get("sha256"):
        raise DamagedCheckpoint(f"{path}: damaged (sha256)")
    _copy(agent, learner, str(path))
    learner.copy_targets()
    learner.copy_observation_statistics(agent.learner)


def _copy(agent: Agent, learner: Learner, where: str) -> None:
    """Copy the weights to every seed, except scalars that the run's settings changed, such as a fixed `alpha`."""
    weights, before = agent.parameters(0), agent.learner.scalars()
    changed = tuple(f"{group}." for group, values in learner.scalars().items() if values != before.get(group))
    for index in range(len(learner.seeds)):
        mine = learner.seed_parameters(index)
        odd = sorted(name for name in mine.keys() | weights.keys()
                     if name not in mine or name not in weights or mine[name].shape != weights[name].shape)  # fmt: skip
        if odd:
            shapes = [tuple(one[odd[0]].shape) if odd[0] in one else "missing" for one in (weights, mine)]
            raise UserError(
                f"{where}: its networks are not those of this run: {odd[0]} is {shapes[0]}, here it is {shapes[1]}"
            )
        kept = {name: weights[name] for name in mine if not name.startswith(changed)}
        learner.load_seed_parameters(index, kept)
