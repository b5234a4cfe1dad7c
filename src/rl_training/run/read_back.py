"""Reads back what a run has saved beside its newest agent: the agent of its best evaluation, and its replay."""

from __future__ import annotations

from pathlib import Path

import torch

from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.parts import restore
from rl_training.checkpoint.schema import find_checkpoint
from rl_training.config.settings import ReplaySettings
from rl_training.core.checks import UserError
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.part import ReplayPart
from rl_training.envs.host.conformance import Takes, check_spaces
from rl_training.envs.host.factory import EnvSource
from rl_training.run.agent import Agent
from rl_training.run.capacity import check_replay_memory, make_replay
from rl_training.run.validate import parse_settings


def best_agent_file(checkpoint: Path) -> Path:
    """The agent file of the best evaluation of a run up to this checkpoint; of several seeds, the best seed's."""
    found, _ = find_checkpoint(checkpoint, only=())
    config, best = found.state["config"], found.state["parts"].get("session", {}).get("best", ())
    seeds = config["seeds"] or [config["seed"]]
    evaluated = [(mean, -index) for index, mean in enumerate(best) if mean is not None]
    if not evaluated:
        raise UserError(f"{found.path}: there is no best agent, since the run has no evaluation so far")
    path = found.path.parent.parent / "agents" / f"seed_{seeds[-max(evaluated)[1]]}_best.safetensors"
    if not path.exists():
        raise UserError(f"{path}: no such file, which the run's best evaluation wrote")
    return path


def read_replay(agent: Agent, source: EnvSource) -> ReplayBuffer:
    """The replay in the checkpoint that an agent was loaded from, in host memory."""
    config = agent.config
    if agent.file is not None or agent.path is None:
        raise UserError(f"{agent.path}: an agent file has no replay; load its run instead")
    _, settings = parse_settings(config)
    checkpoint, _ = find_checkpoint(agent.path)
    if ReplayPart.name not in checkpoint.state["parts"] or not isinstance(settings, ReplaySettings):
        how = "a dataset alone" if learner_class(config.algo).offline else "rollouts, which are not kept"
        raise UserError(f"{agent.path}: there is no replay, since {config.algo} has learned from {how}")
    # How many frames an image stacks, and the time limit, are known to the environment alone.
    spec = check_spaces(source, Takes.of(agent.spec)) if agent.spec.observation.stored_as_frames else agent.spec
    check_replay_memory(config, settings, spec, "cpu")
    replay = make_replay(config, settings, spec, torch.device("cpu"))
    restore(checkpoint, [ReplayPart(replay, spec)])
    return replay
