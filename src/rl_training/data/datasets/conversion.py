"""Conversion of files and arrays in memory to transitions, and of transitions to training data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Space

from rl_training.core.checks import UserError, one_line, shown
from rl_training.data.datasets.array_store import MEMORY_SHARE, Array, allocate, blocks, memory_share_for_copy
from rl_training.data.datasets.formats.loaders import NoSuchData, load_transitions, memory_transitions
from rl_training.data.datasets.from_run import is_run, load_replay
from rl_training.data.datasets.memory import WHERE, Dataset
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.datasets.transitions import Transitions
from rl_training.envs.spaces import ActionCodec, ObservationCodec, described_shape, space_from_dict

# Errors from an invalid description of a space.
SPACE_ERRORS = (KeyError, IndexError, TypeError, ValueError, OverflowError, AssertionError)
ROUNDING = 1e-5  # of the library's [-1, 1]: how far an action may be outside its bounds by float32 rounding


def load_data(path: str | Path, *, drop_nonfinite: bool = False, memory_share: float = MEMORY_SHARE) -> Transitions:
    """Load a dataset: npz, HDF5, a local Minari dataset (path or id), or the replay of a run or checkpoint.

    Arrays larger than `memory_share` of the free memory are memory-mapped; a replay of that size is rejected.
    """
    try:
        if is_run(Path(path)):
            return load_replay(Path(path), drop_nonfinite, memory_share)
        transitions = load_transitions(path, drop_nonfinite=drop_nonfinite, memory_share=memory_share)
    except PermissionError as error:  # of a parent folder
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    return _with_valid_spaces(transitions, str(path))


def memory_data(
    dataset: Dataset | None, *, drop_nonfinite: bool = False, action_space: dict[str, Any] | None = None
) -> Transitions:
    """The transitions of a dataset in memory, which a resumed run needs again; `action_space`, if it is known."""
    if dataset is None:
        raise NoSuchData("dataset_kind is memory: the dataset itself must be passed, in Python with dataset=...")
    transitions = memory_transitions(dataset, drop_nonfinite=drop_nonfinite, action_space=action_space)
    return _with_valid_spaces(transitions, WHERE)


def _with_valid_spaces(transitions: Transitions, where: str) -> Transitions:
    for name, array in (("observation_space", transitions.obs), ("action_space", transitions.actions)):
        _check_described_space(getattr(transitions, name), array, f"{where}: its {name}")
    return transitions


def _check_described_space(described: dict[str, Any] | None, array: Array, what: str) -> None:
    """Reject a description that is not of a space, or not of the file's rows."""
    if described is None:
        return
    try:
        shape = described_shape(described)
        if shape != array.shape[1:] and {shape, array.shape[1:]} != {(), (1,)}:
            raise ValueError(f"it is of shape {shown(shape)}, the rows are of shape {array.shape[1:]}")
        space_from_dict(described)
    except SPACE_ERRORS as error:
        raise UserError(f"{what} cannot be used: {one_line(error)}") from error


def differences(
    transitions: Transitions, observation: ObservationCodec, action: ActionCodec, env_id: str, where: str
) -> list[str]:
    """Differences between a dataset and the environment, which are allowed and often mistakes."""
    found = []
    named = transitions.env_id is not None and "<" not in (transitions.env_id[0], env_id[0])  # <...>: from a function
    if named and _bare(str(transitions.env_id)) != _bare(env_id):
        found.append(f"{where}: the dataset is of {transitions.env_id}, the environment is {env_id}")
    described = transitions.action_space
    if described is not None and described["kind"] == "box" and isinstance(action.space, Box):
        space = space_from_dict(described)
        assert isinstance(space, Box)
        if not unbounded(space) and not (
            np.allclose(space.low, action.space.low) and np.allclose(space.high, action.space.high)
        ):
            found.append(
                f"{where}: the dataset's action space is {one_line(space)}, the environment's {one_line(action.space)}"
            )
    bounds = observation.bounds(ROUNDING)
    if bounds is not None:
        low, high = bounds
        obs, count = transitions.obs.reshape(len(transitions), *low.shape), 0
        for rows in blocks(obs):
            outside = (obs[rows] < low) | (obs[rows] > high)
            count += int(outside.reshape(len(outside), -1).any(1).sum())
        if count:
            found.append(f"{where}: {count} of {len(obs)} observations are outside {one_line(observation.space)}")
    return found


def unbounded(space: Space[Any]) -> bool:
    """Whether all bounds are infinite, as formats write unknown bounds."""
    return isinstance(space, Box) and not np.isfinite([space.low, space.high]).any()


def _bare(env_id: str) -> str:
    """An id without the module that registers it, whose name may differ."""
    return env_id.rpartition(":")[2]


def training_data(
    transitions: Transitions,
    observation: ObservationCodec,
    action: ActionCodec,
    where: str,
    clip_actions: bool = False,
    report: Callable[[str], None] = lambda note: None,
) -> TransitionDataset:
    """The transitions in the library's units, checked against the spaces; clipped actions are reported."""
    _check_observations(transitions, observation, where)
    return TransitionDataset(
        obs=_encoded(transitions.obs, observation, where),
        actions=_converted_actions(transitions, action, where, clip_actions, report),
        rewards=transitions.rewards,
        next_obs=_encoded(transitions.next_obs, observation, where),
        dones=transitions.terminated,
        truncations=transitions.truncated,
    )


def _encoded(array: Array, observation: ObservationCodec, where: str) -> Array:
    """The observations in the library's shape and dtype, without a copy where they have it already."""
    if observation.keeps_precision and array.dtype == observation.dtype:
        return observation.from_file(array)
    layout = {"observations": ((len(array), *observation.shape), observation.dtype)}
    encoded = allocate(layout, where, memory_share_for_copy(array))["observations"]
    for rows in blocks(encoded):
        encoded[rows] = observation.from_file(array[rows])
    return encoded


def _check_observations(transitions: Transitions, observation: ObservationCodec, where: str) -> None:
    space, obs = observation.space, transitions.obs
    # A space of a single number has no axes, where a file of single numbers has one.
    needed = observation.file_shape
    single = observation.keeps_precision and {obs.shape[1:], needed} == {(), (1,)}
    if obs.shape[1:] != needed and not single:
        raise UserError(f"{where}: observations are of shape {obs.shape[1:]}, the environment's are {needed}")
    if observation.is_tree and transitions.observation_space is not None:
        described = ObservationCodec(space_from_dict(transitions.observation_space))
        if described.spec != observation.spec:
            raise UserError(f"{where}: has {described.spec}, the environment has {observation.spec}")
    if not observation.accepts_dtype(obs.dtype):
        raise UserError(f"{where}: images must be uint8, got {obs.dtype}")
    if observation.one_hot:
        for array in (obs, transitions.next_obs):
            low = int(space.start)  # type: ignore[attr-defined]
            wrong = (array < low) | (array >= low + observation.spec.size) | (array != np.floor(array))
            _reject_rows(wrong, array, f"{where}: observations must be in {space}")


def _converted_actions(
    transitions: Transitions, action: ActionCodec, where: str, clip_actions: bool, report: Callable[[str], None]
) -> Array:
    """The actions in the library's units; those outside the bounds are clipped with `clip_actions`, else rejected."""
    actions = transitions.actions
    if not action.accepts(actions):
        raise UserError(f"{where}: actions are {actions.dtype} {actions.shape}, the environment has {action.space}")
    layout = {"actions": ((len(actions), *action.spec.shape), np.dtype(action.spec.dtype))}
    converted = allocate(layout, where, memory_share_for_copy(actions))["actions"]
    outside = np.zeros(len(actions), np.bool_)
    for rows in blocks(actions):
        converted[rows] = action.from_env(actions[rows])
        outside[rows] = action.outside(converted[rows], ROUNDING)
    if not (clip_actions and action.can_be_clipped):
        hint = "; clip them with clip_actions=True" if action.can_be_clipped else ""
        _reject_rows(outside, actions, f"{where}: actions must be in {action.space}", hint)
    elif outside.any():
        report(f"{where}: the actions of {int(outside.sum())} of {len(outside)} rows were clipped to {action.space}")
    return np.clip(converted, -1, 1, out=converted) if action.can_be_clipped else converted


def _reject_rows(wrong: Array, values: Array, message: str, hint: str = "") -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        found = np.array2string(np.asarray(values[row]), precision=4, separator=", ", threshold=8)
        found = " ".join(found.split())
        raise UserError(f"{message}: {int(wrong.sum())} of {len(wrong)} rows are not, row {row} is {found}{hint}")
