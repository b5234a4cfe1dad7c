"""Prepare the dataset of an offline run: load or generate it, and check it against the environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rl_training.config.offline_settings import OfflineSettings
from rl_training.core.assets import find_packaged_asset
from rl_training.core.checks import UserError
from rl_training.core.specs import ArraySpec, EnvSpec
from rl_training.data.datasets.array_store import Array, blocks
from rl_training.data.datasets.conversion import ROUNDING, differences, load_data, memory_data, training_data, unbounded
from rl_training.data.datasets.formats.loaders import NoSuchData, has_many_actions
from rl_training.data.datasets.generate import DatasetAgent, record_policy, record_random
from rl_training.data.datasets.memory import WHERE, Dataset, packed
from rl_training.data.datasets.summary import summary_for_record, trajectory_returns
from rl_training.data.datasets.transition_dataset import ResidentData, TransitionDataset
from rl_training.data.datasets.transitions import Transitions, concatenated, mostly_single_rows
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.mixed import MixedData
from rl_training.envs.host.conformance import Conformance, check_environment, check_spaces, with_conformance
from rl_training.envs.host.episode_bound import EpisodeBound
from rl_training.envs.host.factory import EnvSource, environment_codecs
from rl_training.envs.spaces import ActionCodec, ObservationCodec, env_spec, space_from_dict, space_to_dict
from rl_training.envs.spaces.files import MAX_SPACE
from rl_training.tensors.observations import numbers, split

LoadAgent = Callable[[Path], DatasetAgent]  # loads the agent that generates a dataset
RETURN_RANGE = 1000.0  # of scaled trajectories: at most a thousand steps with rewards around one


@dataclass(frozen=True)
class PreparedDataset:
    """A dataset, its spaces, and whether there is an environment for evaluation."""

    dataset: TransitionDataset
    observation: ObservationCodec
    action: ActionCodec
    summary: dict[str, Any]  # rows, returns, digest, source
    has_environment: bool
    environment: Conformance | None  # None: used for evaluations alone
    notices: tuple[str, ...]
    scale: float  # of the rewards, before the shift
    shift: float
    has_time_limit: bool  # of that environment
    settings: OfflineSettings

    @property
    def spec(self) -> EnvSpec:
        return env_spec(self.observation, self.action)

    @property
    def sha256(self) -> str:
        return str(self.summary["sha256"])

    @property
    def about(self) -> dict[str, Any]:
        """The entry in the run's record and its checkpoints."""
        return {"dataset": self.summary}

    def change_since(self, recorded: Any, where: Path, force: bool) -> str | None:
        """The difference from the dataset that a run started with; rejected unless `force` is set.

        `recorded` is the summary in the run's record; None: the run was killed before it started to learn.
        """
        digest = recorded.get("sha256") if isinstance(recorded, dict) else None
        if recorded is None or digest == self.sha256:
            return None
        change = f"the dataset has changed (sha256 {str(digest)[:16]} -> {self.sha256[:16]})"
        if not force:
            raise UserError(f"{where}: {change}; force=True resumes with it anyway")
        return change

    def mixed_with(self, replay: ReplayBuffer, data: ResidentData) -> MixedData:
        """The source of batches of a run that continues online."""
        share, size = self.settings.online_data_share, self.settings.batch_size
        return MixedData(data, replay, batch_size=size, share=share, scale=self.scale, shift=self.shift)


def prepare_dataset(
    settings: OfflineSettings, source: EnvSource, given: Dataset | None, bound: EpisodeBound, load_agent: LoadAgent
) -> PreparedDataset:
    """Load or generate the dataset and check it against the environment, or, without one, against its own spaces."""
    notices: list[str] = []
    no_environment, environment, has_time_limit = None, None, True
    try:
        if settings.dataset_kind in ("file", "memory") and settings.offline_steps is None:
            spec = check_spaces(source)
        else:
            environment = check_environment(source)
            source, spec = with_conformance(source, environment), environment.spec
        has_time_limit = spec.episode_limit is not None
    except UserError as error:
        if settings.dataset_kind not in ("file", "memory") or settings.offline_steps is not None:
            raise
        no_environment = str(error)
        notices.append(f"no environment, so there are no evaluations: {error}")
    action_space = None
    if settings.dataset_kind == "memory" and no_environment is None:
        observation, action = environment_codecs(source)
        given, described = packed(given, observation), space_to_dict(action.space)
        action_space = described if has_many_actions({"action_space": described}) else None
    transitions, where = _transitions(settings, source, given, bound, load_agent, action_space)
    origin = data_source(settings, source)
    if settings.dataset_kind in ("random", "policy"):
        notices.append(f"no dataset is given (dataset_path), so one was generated: {origin}")
    notices += transitions.notes
    try:
        if no_environment is None:
            observation, action = environment_codecs(source)
        else:
            observation, action = dataset_spaces(transitions, where, settings.clip_actions)
        dataset = training_data(transitions, observation, action, where, settings.clip_actions, notices.append)
    except UserError as error:
        if no_environment is None:
            raise
        raise UserError(f"{error}; there is no environment either: {no_environment}") from error
    if no_environment is None:
        notices += differences(transitions, observation, action, source.env_id, where)
    scale, shift = _reward_scale(settings, transitions), settings.reward_shift
    dataset = dataset.with_reward_transform(scale=scale, shift=shift)
    summary = {
        "kind": settings.dataset_kind,
        "source": origin,
        **summary_for_record(transitions),
        "offline_steps": settings.offline_steps,
    }
    return PreparedDataset(
        dataset, observation, action, summary, no_environment is None, environment, tuple(notices), scale, shift,
        has_time_limit, settings,
    )  # fmt: skip


def data_source(settings: OfflineSettings, source: EnvSource) -> str:
    """The origin of the dataset as text: its files, or how it is generated."""
    if settings.dataset_kind == "file":
        return ", ".join(map(str, settings.dataset_paths))
    if settings.dataset_kind == "memory":
        return "arrays in memory, passed in Python"
    policy = "random actions"
    if settings.dataset_kind == "policy":
        policy = f"the agent {settings.dataset_agent} with noise {settings.dataset_noise:g}"
    return f"{settings.dataset_size:,} steps of {policy} in {source.env_id}, dataset_seed {settings.dataset_seed}"


def _transitions(
    settings: OfflineSettings,
    source: EnvSource,
    given: Dataset | None,
    bound: EpisodeBound,
    load_agent: LoadAgent,
    action_space: dict[str, Any] | None,
) -> tuple[Transitions, str]:
    if settings.dataset_kind == "memory":
        data = memory_data(given, drop_nonfinite=settings.drop_nonfinite, action_space=action_space)
        return replace(data, notes=tuple(f"{WHERE}: {note}" for note in data.notes)), WHERE
    if settings.dataset_kind == "file":
        paths = settings.dataset_paths
        repeated = sorted({str(path) for path in paths if paths.count(path) > 1})
        parts = []
        for path in paths:
            part = load_data(path, drop_nonfinite=settings.drop_nonfinite)
            parts.append(replace(part, notes=tuple(f"{path}: {note}" for note in part.notes)))
        data = concatenated(parts, [str(path) for path in paths])
        notes = (*data.notes, *(f"{path}: named more than once, so its rows count as often" for path in repeated))
        return replace(data, notes=notes), ", ".join(map(str, paths))
    size, seed = settings.dataset_size, settings.dataset_seed
    if settings.dataset_kind == "random":
        return record_random(source, size, seed, bound=bound), f"the recording of {source.env_id}"
    assert settings.dataset_agent is not None
    path = settings.dataset_agent
    found = path if path.exists() else find_packaged_asset(path)
    if found is None:
        raise NoSuchData(f"{path}: no such agent, which would generate the dataset")
    made = record_policy(load_agent(found), source, size, seed, settings.dataset_noise, bound=bound)
    return made, f"the recording of {source.env_id}"


def _reward_scale(settings: OfflineSettings, transitions: Transitions) -> float:
    if settings.reward_scale != "return_range":
        return settings.reward_scale
    if mostly_single_rows(transitions):
        raise UserError(
            "reward_scale must be a number here: return_range needs whole trajectories, and "
            f"{len(transitions.stops())} of {len(transitions)} rows of the dataset end one"
        )
    returns, _ = trajectory_returns(transitions)
    spread = float(returns.max() - returns.min())
    return RETURN_RANGE / spread if spread > 0 else 1.0


def dataset_spaces(
    transitions: Transitions, where: str, clip_actions: bool = False
) -> tuple[ObservationCodec, ActionCodec]:
    """The spaces in a dataset; else unbounded observations, and actions in [-1, 1] or the choices in its rows."""
    if transitions.observation_space is not None and transitions.action_space is not None:
        stored = [space_from_dict(one) for one in (transitions.observation_space, transitions.action_space)]
        if unbounded(stored[1]):
            stored[1] = _inferred_action_space(transitions.actions, where, clip_actions)
        try:
            codecs = ObservationCodec(stored[0]), ActionCodec(stored[1])
            codecs[1].require_bounds()
            return codecs
        except UserError as error:
            raise UserError(f"{where}: its spaces cannot be used: {error}") from error
    obs = transitions.obs
    low, high = (0, 255) if obs.dtype == np.uint8 else (-np.inf, np.inf)
    kind: Any = np.uint8 if obs.dtype == np.uint8 else np.float32
    observation = gymnasium.spaces.Box(low, high, obs.shape[1:] or (1,), kind)
    return ObservationCodec(observation), ActionCodec(_inferred_action_space(transitions.actions, where, clip_actions))


def _inferred_action_space(actions: Array, where: str, clip_actions: bool) -> gymnasium.Space[Any]:
    if actions.ndim > 1:
        largest = max(float(np.abs(actions[rows]).max()) for rows in blocks(actions))
        if largest > 1 + ROUNDING and not clip_actions:
            raise UserError(
                f"{where}: actions must be in [-1, 1] where their bounds are unknown, got {largest:.4g}; if those "
                "are their bounds, clip them with clip_actions=True"
            )
        return gymnasium.spaces.Box(-1.0, 1.0, actions.shape[1:], np.float32)
    if actions.min() < 0:
        raise UserError(f"{where}: actions must be >= 0 where there is no environment, got {actions.min()}")
    if actions.max() >= MAX_SPACE:
        raise UserError(f"{where}: actions must be < {MAX_SPACE}, got {actions.max()}")
    return gymnasium.spaces.Discrete(int(actions.max()) + 1)


def observation_statistics(dataset: TransitionDataset, spec: ArraySpec) -> tuple[Array, Array]:
    """Mean and standard deviation of the observations' numbers, in float64 and without a copy of all of them."""
    obs = numbers(spec, split(spec, dataset.obs)).numpy()
    mean = sum(obs[rows].sum(0, dtype=np.float64) for rows in blocks(obs)) / len(obs)
    squares = sum(np.square(obs[rows] - mean).sum(0) for rows in blocks(obs))
    return mean, np.sqrt(squares / len(obs))
