"""Agents: trained policies with everything needed to act, to be evaluated and to be saved as one file."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import Checkpoint, DamagedCheckpoint, available, load_tensors
from rl_training.checkpoint.schema import LEARNER, find_checkpoint, invalid_file
from rl_training.config.fields import parse
from rl_training.config.objects import Objects, python_objects, with_objects
from rl_training.config.train_config import TrainConfig, config_from_dict
from rl_training.core.checks import Note, UserError, one_line, require, shown
from rl_training.core.specs import EnvSpec
from rl_training.core.version import __version__
from rl_training.engine.acting import Act, State
from rl_training.engine.engine import MAX_COUNT
from rl_training.envs.spaces import ActionCodec, ObservationCodec, codecs_from_dict, codecs_to_dict, env_spec
from rl_training.files.atomic import parse_json, read_bytes, replace_file
from rl_training.files.tensor_files import pack_tensors
from rl_training.run.plan import choose_device

FORMAT = 1
KEY = "rl_training"
MAX_HEADER_BYTES = 100_000_000  # as in safetensors itself
Array = NDArray[Any]


def new_run_config(config: TrainConfig) -> TrainConfig:
    """A trained agent's config for a new run: without its run's name, start and interval of evaluations."""
    return replace(config, run_name=None, started_from=None, eval_interval=None)


class Agent:
    """The policies of all seeds of a run, or of the one seed in an agent file."""

    def __init__(
        self, config: TrainConfig, learner: Learner, observation: ObservationCodec, action: ActionCodec, step: int = 0
    ) -> None:
        self.config, self.learner, self.step = config, learner, step
        self.observation, self.action = observation, action
        self.path: Path | None = None  # the file or checkpoint it was loaded from
        self.file: bytes | None = None  # the bytes of the agent file it was loaded from
        self._calls = 0  # stochastic predictions so far, each with its own random numbers

    @property
    def spec(self) -> EnvSpec:
        return env_spec(self.observation, self.action)

    @property
    def objects(self) -> Objects:
        """The classes and functions of its settings, which `load_agent` needs to load its file."""
        return python_objects(asdict(self.learner.settings))

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        *,
        state: Any = None,
        episode_start: Any = None,
        action_mask: Any = None,
        seed_index: int = 0,
    ) -> Any:
        """Actions in the environment's units: an int or an (action_dim,) array for one observation, else a batch.

        `action_mask`: for an agent that was trained with masks; one for each observation, by default all allowed.
        With a `state`, `(actions, next state)`: a recurrent policy's by name, each (rows, ...); `{}` starts an episode,
        and so does each row with `episode_start`. A policy without a state returns the one it was given.
        """
        if action_mask is not None and not self.observation.mask:
            why = f"{self.config.algo} does not support action masks"
            why = "its environment gave no action masks" if self.learner.takes_masks else why
            raise UserError(f"action_mask must not be given: {why}")
        self.check_seed_index(seed_index)
        rows, single = self.observation.read(obs, action_mask)
        before = self._state(state, episode_start, len(rows))
        if deterministic and state is None and not before and self.learner.acting.alone_on_cpu:
            result = self.action.to_env(self.learner.greedy_rows(torch.from_numpy(rows)).numpy())
            return self.action.one(result) if single else result
        act = self._act(rows, deterministic, before)
        result = self.action.to_env(act.action[seed_index].cpu().numpy())
        action = self.action.one(result) if single else result
        if state is None:
            return action
        after = {name: tensor[seed_index].cpu().numpy() for name, tensor in act.state.items()}
        return action, after or state

    def act(self, rows: Array, state: State | None = None) -> tuple[Array, State]:
        """The first seed's greedy actions for encoded observations (rows, ...), in the library's units; the next state.

        `state`: what the last call returned; None: an episode starts in every row.
        """
        act = self._act(rows.copy(), True, state or self.learner.initial_states(len(rows)))
        return act.action[0].cpu().numpy(), act.state

    def _act(self, rows: Array, deterministic: bool, state: State) -> Act:
        seeds = len(self.learner.seeds)
        every_seed = torch.from_numpy(rows).expand(seeds, *rows.shape)
        if seeds > 1:
            every_seed = every_seed.contiguous()
        if deterministic:
            return self.learner.act_greedy(every_seed, state)
        self._calls += 1
        return self.learner.act_explore(every_seed, self._calls, 1.0, state)

    def _state(self, given: Any, episode_start: Any, rows: int) -> dict[str, Tensor]:
        """The state of every seed to act from: `given`, and the initial one where an episode starts."""
        initial = self.learner.initial_states(rows)
        if episode_start is None and (not initial or given is None):
            return initial
        starts = np.asarray(False if episode_start is None else episode_start, np.bool_)
        require(starts.shape in ((), (rows,)), "episode_start", f"one flag per row ({rows}), got {starts.shape}")
        if not initial or given is None:
            return initial
        require(isinstance(given, Mapping), "state", f"a mapping of arrays, got {shown(given)}")
        if not given:
            return initial
        names = ", ".join(map(str, given))
        require(given.keys() == initial.keys(), "state", f"a mapping with {', '.join(initial)}, got {names}")
        return {name: _continued(name, one, given[name], starts) for name, one in initial.items()}

    def check_seed_index(self, seed_index: int) -> None:
        """Reject the index of a seed that the run does not have."""
        count = len(self.learner.seeds)
        if not 0 <= seed_index < count:
            raise UserError(f"seed_index must be >= 0 and < {count}, the number of seeds, got {seed_index}")

    def parameters(self, seed_index: int) -> dict[str, Tensor]:
        """The tensors of one seed's policy, by name."""
        self.check_seed_index(seed_index)
        return self.learner.seed_parameters(seed_index)

    def save(self, path: str | Path, seed_index: int = 0) -> Path:
        """Save one seed's policy as a portable file, with any suffix."""
        path = Path(path)
        try:
            replace_file(path, self.pack(seed_index))
        except OSError as error:
            raise UserError(f"{path}: cannot be written ({error.strerror})") from error
        return path

    def pack(self, seed_index: int) -> bytes:
        """The bytes of an agent file."""
        about, tensors = self._about(seed_index)
        return pack_tensors(tensors, {KEY: json.dumps(about, sort_keys=True)})

    def digest(self, seed_index: int = 0) -> str:
        """The SHA-256 of one seed's policy, its spaces and its config, without this library's version."""
        about, tensors = self._about(seed_index)
        return _digest({key: value for key, value in about.items() if key != "library"}, tensors)

    def _about(self, seed_index: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The metadata and tensors of an agent file."""
        tensors = self.parameters(seed_index)
        about: dict[str, Any] = {
            "format": FORMAT,
            "library": __version__,
            "config": {**self.config.to_dict(), "seed": self.learner.seeds[seed_index], "seeds": []},
            **codecs_to_dict(self.observation, self.action),
            "step": self.step,
        }
        if self.learner.observation_count is not None:  # so that a new run can continue its statistics
            about["observations"] = self.learner.observation_count
        about["sha256"] = _digest(about, tensors)
        return about, tensors


def _continued(name: str, initial: Tensor, given: Any, starts: Array) -> Tensor:
    """The state (seeds, rows, ...) that continues one seed's, with the initial state where an episode starts."""
    try:
        # A copy: torch warns of arrays that cannot be written, such as those of a request.
        found = torch.tensor(np.asarray(given), dtype=initial.dtype, device=initial.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"state: {name} must be an array of numbers, got {shown(given)}") from error
    shape = tuple(initial.shape[1:])
    if shape[0] == 1 and tuple(found.shape) == shape[1:]:  # of one observation, without its row
        found = found[None]
    require(tuple(found.shape) == shape, f"state: {name}", f"of shape {shape}, got {tuple(found.shape)}")
    require(bool(found.isfinite().all()), f"state: {name}", "finite, got NaN or infinity")
    fresh = torch.tensor(starts, device=initial.device).expand(shape[0]).view(-1, *(1,) * (len(shape) - 1))
    return torch.where(fresh, initial, found)


def _digest(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of an agent file's metadata and of every tensor's name, dtype, shape and bytes."""
    metadata = {key: value for key, value in about.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(metadata, sort_keys=True).encode())
    for name in sorted(tensors):
        array = np.asarray(tensors[name].detach().cpu().numpy(), order="C")
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def load_agent(path: str | Path, device: str = "cpu", objects: Objects | None = None) -> Agent:
    """Load an agent from an agent file, a checkpoint directory or a run directory.

    `objects`: the classes and functions of its settings that a file only names, `{"network": {"features": MyNet}}`.
    """
    path = Path(path)
    if path.is_dir():
        checkpoint, notes = find_checkpoint(path, only=(LEARNER,))
        for note in notes:
            warnings.warn(note, Note, stacklevel=2)
        return agent_from_checkpoint(checkpoint, device, objects)
    if not path.exists():
        raise UserError(f"{path}: no such file or directory{available(path.parent)}")
    data, about = _read(path)
    tensors = load_tensors(data, path)
    if about.get("sha256") != _digest(about, tensors) or data != pack_tensors(
        tensors, {KEY: json.dumps(about, sort_keys=True)}
    ):
        raise DamagedCheckpoint(f"{path}: damaged (sha256)")
    agent = _build(about, path, device, tensors, objects)
    if len(agent.learner.seeds) != 1:
        raise UserError(f"{path}: an agent file is of one seed, its config has {len(agent.learner.seeds)}")
    _load_parameters(agent, tensors, path)
    if agent.learner.observation_count is not None:
        seen = about.get("observations", agent.step)
        if not isinstance(seen, int) or not 0 <= seen < MAX_COUNT:
            raise invalid_file(path, f"observations must be >= 0 and < {MAX_COUNT}, got {shown(seen)}")
        agent.learner.set_observation_count(seen)
    agent.path, agent.file = path, data
    return agent


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes and the metadata of an agent file; any other file is rejected."""
    invalid = UserError(f"{path}: not a rl_training agent or checkpoint")
    target = path.resolve()  # a link given by the user is followed, unlike those inside a checkpoint
    length = int.from_bytes(read_bytes(target, first=8), "little")
    if not 2 <= length <= min(MAX_HEADER_BYTES, target.stat().st_size - 8):
        raise invalid
    data = read_bytes(target)
    try:
        about = parse_json(parse_json(data[8 : 8 + length], path)["__metadata__"][KEY], path)
    except (ValueError, KeyError, TypeError) as error:
        raise invalid from error
    if not isinstance(about, dict):
        raise invalid
    if isinstance(about.get("format"), int) and about["format"] > FORMAT:
        raise UserError(f"{path}: written by {one_line(about.get('library'))}, this is {__version__}")
    return data, about


def _build(
    about: Mapping[str, Any], path: Path, device: str, tensors: Mapping[str, Tensor], objects: Objects | None
) -> Agent:
    """The agent described by a file's metadata; networks larger than the file's tensors are never allocated."""
    try:
        config = config_from_dict(about["config"], allow_module_env=True)
        observation, action = codecs_from_dict(about)
        cls = learner_class(config.algo)
        settings = parse(cls.settings_type, with_objects(config.algo_kwargs, objects))
        spec, step = env_spec(observation, action), about["step"]
        if not isinstance(step, int) or step < 0:
            raise ValueError(f"step must be >= 0, got {shown(step)}")
        if not cls.supports(spec):
            raise ValueError(f"{config.algo} does not fit its spaces")
        with torch.device("meta"):
            size = sum(one.numel() for one in cls.build_model(spec, settings).parameters())
        if size * len(config.seed_list) > sum(tensor.numel() for tensor in tensors.values()):
            raise ValueError("its tensors do not fit its configuration")
        learner = cls.create(spec, settings, config.seed_list, device=choose_device(device))
        return Agent(config, learner, observation, action, step)
    except _ERRORS as error:
        what = error if isinstance(error, ValueError) else f"damaged or incomplete ({type(error).__name__}: {error})"
        raise invalid_file(path, what) from error


_ERRORS = (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError, RuntimeError)


def _load_parameters(agent: Agent, tensors: Mapping[str, Tensor], path: Path) -> None:
    mine = agent.parameters(0)
    if set(mine) != set(tensors) or any(
        mine[name].shape != tensors[name].shape or mine[name].dtype != tensors[name].dtype for name in mine
    ):
        raise UserError(f"{path}: its tensors do not fit its configuration")
    agent.learner.load_seed_parameters(0, tensors)


def load_learner(learner: Learner, tensors: Mapping[str, Tensor], checkpoint: Path) -> None:
    """Load a checkpoint's tensors into a learner, or reject them in one line."""
    try:
        learner.load_state_dict(tensors)
    except (KeyError, ValueError) as error:
        raise invalid_file(checkpoint, f"{LEARNER}: {error}") from error


def agent_from_checkpoint(checkpoint: Checkpoint, device: str = "cpu", objects: Objects | None = None) -> Agent:
    """The agent of a checkpoint, with all its seeds."""
    tensors = checkpoint.tensors(LEARNER)
    agent = _build(checkpoint.state, checkpoint.path, device, tensors, objects)
    load_learner(agent.learner, tensors, checkpoint.path)
    agent.path = checkpoint.path
    return agent
