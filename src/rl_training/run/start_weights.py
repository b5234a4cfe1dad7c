"""Starts a new run from a trained agent's weights, which are copied into the run for resuming it.

The agent is that of a file, a checkpoint or a run. Of several seeds, each seed of the new run starts from its own if
the seeds of both are equal; otherwise every seed starts from the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from rl_training.algorithms.base import Learner
from rl_training.algorithms.normalizer import GROUP
from rl_training.checkpoint.read import DamagedCheckpoint
from rl_training.config.objects import python_objects
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError, did_you_mean, require, shown
from rl_training.core.specs import EnvSpec
from rl_training.engine.engine import RUNNING
from rl_training.files.atomic import replace_file
from rl_training.run.agent import Agent, load_agent

START = "start.safetensors"  # in the run's directory; one file per seed where each starts from its own


def as_agent(given: Any, config: TrainConfig) -> Agent:
    """An agent, or the one of an agent file, a checkpoint or a run, with the classes and functions of this config."""
    if isinstance(given, (str, Path)):
        return load_agent(given, objects=python_objects(config.algo_kwargs))
    require(isinstance(given, Agent), "from_agent", f"a path or a trained agent, got {shown(given)}")
    return given  # type: ignore[no-any-return]


def start_entry(path: str | Path | None, groups: Sequence[str] | None) -> dict[str, Any]:
    """`started_from` of a config: the path of an agent, and named groups of its weights, if not all."""
    if groups is None:
        return {"path": str(path)}
    named = not isinstance(groups, str) and len(groups) > 0
    require(named, "from_groups", f"a list of names such as ['actor'], got {shown(groups)}")
    return {"path": str(path), "groups": list(groups)}


def resolve_start(config: TrainConfig, agent: Agent | None, settings: Any) -> tuple[TrainConfig, Agent | None]:
    """The config with path, digest and step of the agent it starts from, and the agent; None: fresh weights.

    Without `agent`, the config may name an agent file, a checkpoint or a run.
    """
    named = config.started_from or {}
    if agent is None:
        if not named:
            return config, None
        agent = load_agent(named["path"], objects=python_objects(asdict(settings)))
        expected = named.get("sha256")
    else:
        expected = None
    where = agent.path if agent.path is not None else Path("agent")
    if agent.config.algo != config.algo:
        raise UserError(f"{where}: holds a {agent.config.algo} agent, not {config.algo}")
    found: dict[str, Any] = {
        "path": str(where.absolute()),
        "sha256": _digest(_packed(agent, config.seed_list)),
        "step": agent.step,
    }
    if agent.file is None:
        found["seeds"] = list(_taken_seeds(agent, config.seed_list))
    if named.get("groups") is not None:
        found["groups"] = _checked_groups(named["groups"], agent, where)
    if expected is not None and expected != found["sha256"]:
        change = f"sha256 {expected[:16]} -> {found['sha256'][:16]}"
        raise UserError(f"{where}: is another agent than the one that started_from names ({change})")
    return replace(config, started_from=found), agent


def _taken_seeds(agent: Agent, seeds: Sequence[int]) -> tuple[int, ...]:
    """The seeds of the agent that a run with these seeds starts from: its own, or the first."""
    return agent.learner.seeds if agent.learner.seeds == tuple(seeds) else agent.learner.seeds[:1]


def _packed(agent: Agent, seeds: Sequence[int]) -> list[bytes]:
    """The agent files that a run with these seeds starts from: one, or one per seed."""
    if agent.file is not None:
        return [agent.file]
    return [agent.pack(index) for index in range(len(_taken_seeds(agent, seeds)))]


def _digest(files: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(files)).hexdigest()


def _checked_groups(groups: Sequence[str], agent: Agent, where: Path) -> list[str]:
    known = list(dict.fromkeys(name.partition(".")[0] for name in agent.parameters(0)))
    known = [name for name in known if name not in (GROUP, RUNNING)]  # the statistics come with any group
    for name in groups:
        if name not in known:
            text = f"groups must be among {', '.join(known)}, got {shown(name)}"
            raise UserError(f"{where}: {text}{did_you_mean(name, known)}", field_name="from_groups")
    return [name for name in known if name in groups]


def check_start(agent: Agent | None, cls: type[Learner], spec: EnvSpec, settings: Any, config: TrainConfig) -> None:
    """Reject an agent whose weights do not fit a new run, before anything is written."""
    if agent is None:
        return
    if agent.spec != spec:
        raise UserError(f"{agent.path}: the agent was trained on {agent.spec}, {config.env_id} has {spec}")
    _copy([agent], cls.create(spec, settings, [0]), str(agent.path), _groups(config))


def copy_start(agent: Agent | None, run_dir: Path, config: TrainConfig) -> None:
    """Copy the agent into the run, before the run's record is written: a recorded run has its weights."""
    if agent is not None:
        for path, data in zip(start_files(run_dir, config), _packed(agent, config.seed_list), strict=True):
            replace_file(path, data)


def start_files(run_dir: Path, config: TrainConfig) -> list[Path]:
    """The files of a run with the weights that it started from."""
    if config.started_from is None:
        return []
    seeds = config.started_from.get("seeds", ())
    if len(seeds) <= 1:
        return [run_dir / START]
    return [run_dir / f"start_seed_{seed}.safetensors" for seed in seeds]


def load_start(config: TrainConfig, run_dir: Path, learner: Learner) -> None:
    """Load the start weights of a run into a new learner: groups and statistics, with targets as copies."""
    if config.started_from is None:
        return
    paths = start_files(run_dir, config)
    agents = [load_agent(path, objects=python_objects(asdict(learner.settings))) for path in paths]
    files = [agent.file or b"" for agent in agents]
    if _digest(files) != config.started_from.get("sha256") or len(agents) not in (1, len(learner.seeds)):
        raise DamagedCheckpoint(f"{paths[0]}: damaged (sha256)")
    _copy(agents, learner, str(paths[0]), _groups(config))
    learner.copy_targets()
    learner.copy_observation_statistics([agent.learner for agent in agents])


def _groups(config: TrainConfig) -> Sequence[str] | None:
    """The named groups that a run starts from; None: all."""
    return None if config.started_from is None else config.started_from.get("groups")


def _copy(agents: Sequence[Agent], learner: Learner, where: str, groups: Sequence[str] | None) -> None:
    """Copy the weights, one agent's to every seed or one agent's to each.

    Scalars that the run's settings changed, such as a fixed `alpha`, keep the new value.
    """
    before = agents[0].learner.scalars()
    changed = tuple(f"{group}." for group, values in learner.scalars().items() if values != before.get(group))
    for index in range(len(learner.seeds)):
        weights = _of_groups(agents[index % len(agents)].parameters(0), groups)
        mine = _of_groups(learner.seed_parameters(index), groups)
        # Statistics of returns that only one of them has: the run begins its own.
        apart = {name for name in mine.keys() ^ weights.keys() if name.startswith(f"{RUNNING}.")}
        weights, mine = ({k: v for k, v in one.items() if k not in apart} for one in (weights, mine))
        odd = sorted(name for name in mine.keys() | weights.keys()
                     if name not in mine or name not in weights or mine[name].shape != weights[name].shape)  # fmt: skip
        if odd:
            shapes = [tuple(one[odd[0]].shape) if odd[0] in one else "missing" for one in (weights, mine)]
            raise UserError(
                f"{where}: its networks are not those of this run: {odd[0]} is {shapes[0]}, here it is {shapes[1]}"
            )
        learner.load_seed_parameters(index, {k: v for k, v in weights.items() if not k.startswith(changed)})


def _of_groups(parameters: Mapping[str, Tensor], groups: Sequence[str] | None) -> dict[str, Tensor]:
    if groups is None:
        return dict(parameters)
    chosen = (*groups, GROUP, RUNNING)  # networks need the statistics that they were trained with
    return {name: tensor for name, tensor in parameters.items() if name.partition(".")[0] in chosen}
