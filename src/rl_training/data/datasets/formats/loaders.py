"""One way in for every file format, and for arrays in memory.

A file is looked at first: which arrays it has, of what shapes and types. Only what fits together is then read, into
room that was counted beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rl_training.core.checks import UserError, did_you_mean, one_line, shown
from rl_training.data.datasets.array_store import MEMORY_SHARE, Array, Layout, allocate
from rl_training.data.datasets.formats.hdf5 import open_hdf5
from rl_training.data.datasets.formats.minari import clean_id, find_minari, minari_home, open_minari
from rl_training.data.datasets.formats.npz import open_npz
from rl_training.data.datasets.memory import WHERE, Dataset, MemoryReader
from rl_training.data.datasets.transitions import (
    STORED_TWICE,
    Transitions,
    broken,
    check_values,
    column,
    flags,
    successors,
)

# What each array may be called: D4RL's name first, which is also the one that is written.
ALIASES = {
    "obs": ("observations", "obs"),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "next_obs": ("next_observations", "next_obs"),
    "terminated": ("terminals", "terminated", "terminations", "dones"),
    "truncated": ("timeouts", "truncated", "truncations"),
}
ABOUT = "rl_training"  # an array of bytes: the environment and its spaces as JSON
LONGEST_ABOUT = 1 << 24
KEYS = (*(key for keys in ALIASES.values() for key in keys), ABOUT)
SUFFIXES = {".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5"}
MOST_NAMES = 20  # told in a message


class NoSuchData(UserError):
    """There is nothing at the path of a data set."""


class Reader(Protocol):
    """An open file: what its arrays are, and their values."""

    @property
    def layout(self) -> Layout: ...

    @property
    def names(self) -> Iterable[str]: ...  # all that the file has, whether it can be read or not

    def read(self, name: str, out: Array) -> None: ...


def load_transitions(
    path: str | Path, *, drop_nonfinite: bool = False, memory_share: float = MEMORY_SHARE
) -> Transitions:
    """A data set from an npz or HDF5 file or a local Minari data set, checked. Nothing in it is executed."""
    with open_reader(path) as reader:
        return _checked(reader, str(path), drop_nonfinite, memory_share)


def memory_transitions(
    dataset: Dataset, *, drop_nonfinite: bool = False, memory_share: float = MEMORY_SHARE
) -> Transitions:
    """A data set that is in memory, read and checked as a file with arrays of those names would be."""
    return _checked(MemoryReader(dataset, KEYS), WHERE, drop_nonfinite, memory_share)


def _checked(reader: Any, where: str, drop_nonfinite: bool, memory_share: float) -> Transitions:
    about, notes = dict[str, Any](), tuple[str, ...]()
    arrays, present = _read(reader, where, memory_share)
    if hasattr(reader, "about"):
        about, notes = reader.about(), reader.notes
    elif ABOUT in reader.layout:
        about = _read_about(reader, where)
    transitions, lost = _assemble(arrays, present, where, about, notes)
    return check_values(transitions, where, drop_nonfinite, lost=lost)


def open_reader(path: str | Path) -> AbstractContextManager[Any]:
    folder = find_minari(path)
    if folder is not None:
        return open_minari(folder)
    place = Path(path)
    if not place.exists():
        raise NoSuchData(f"{path}: no such data set{_nearby(place)}")
    if place.is_dir():
        raise UserError(f"{path}: is a directory, and not a Minari data set (no data/metadata.json)")
    suffix = place.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: a data set must be {', '.join(SUFFIXES)} or a Minari folder, got {place.suffix!r}")
    if not place.is_file():
        raise UserError(f"{path}: not a regular file")
    return (open_npz if SUFFIXES[suffix] == "npz" else open_hdf5)(place, KEYS)


def _nearby(place: Path) -> str:
    beside = [path for path in _inside(place.parent) if path.suffix.lower() in SUFFIXES or path.is_dir()]
    ids = [] if place.is_absolute() else [path for path in _inside(minari_home() / place.parent) if path.is_dir()]
    return did_you_mean(place.name, [path.name for path in (*beside, *ids)])


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(reader: Reader, where: str, memory_share: float) -> tuple[dict[str, Array], set[str]]:
    """The arrays by field, and which of them the file has: room for `next_obs` is there in any case."""
    layout = reader.layout
    found = {field: next((key for key in keys if key in layout), None) for field, keys in ALIASES.items()}
    missing = [ALIASES[field][0] for field in ("obs", "actions", "rewards") if found[field] is None]
    if missing:
        raise UserError(f"{where}: has no {', '.join(missing)}; it has {_told(reader.names) or 'no arrays'}")
    if found["terminated"] is None and found["truncated"] is None:
        raise UserError(f"{where}: has neither terminals nor timeouts, so it does not tell where an episode ends")
    if found["next_obs"] is None and found["truncated"] is None:
        raise UserError(
            f"{where}: has neither next_observations nor timeouts, so what follows at a time limit is unknown"
        )
    keys = {field: key for field, key in found.items() if key is not None}
    _check_shapes({key: layout[key] for key in keys.values()}, layout[keys["obs"]], keys, where)
    wanted = {field: layout[key] for field, key in keys.items()}
    wanted.setdefault("next_obs", layout[keys["obs"]])
    arrays = allocate(wanted, where, memory_share)
    for field, key in keys.items():
        reader.read(key, arrays[field])
    return arrays, set(keys)


def _told(names: Iterable[str]) -> str:
    every = sorted(names)
    more = f" and {len(every) - MOST_NAMES} more" if len(every) > MOST_NAMES else ""
    return one_line(", ".join(every[:MOST_NAMES])) + more


def _check_shapes(layout: Layout, obs: Any, keys: Mapping[str, str], where: str) -> None:
    for key, (shape, dtype) in layout.items():
        if not shape:
            raise UserError(f"{where}: {key} must be an array with a row for each transition, got a single {dtype}")
    lengths = {key: shape[0] for key, (shape, _) in layout.items()}
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise UserError(f"{where}: all arrays must have the same length, got {said}")
    if "next_obs" in keys and layout[keys["next_obs"]] != obs:
        (mine, my_type), (other, other_type) = obs, layout[keys["next_obs"]]
        raise UserError(
            f"{where}: {keys['obs']} is {my_type} {mine}, {keys['next_obs']} is {other_type} {other}: "
            "they must be of one shape and type"
        )
    shape, dtype = layout[keys["actions"]]
    if (
        dtype.kind not in "fiu"
        or (dtype.kind != "f" and shape[1:] not in ((), (1,)))
        or len(shape) > 2
        or 0 in shape[1:]
    ):
        raise UserError(
            f"{where}: actions must be numbers of shape (rows, n) or choices of shape (rows,), got {dtype} {shape}"
        )
    if obs[1].kind == "b" or 0 in obs[0][1:]:
        raise UserError(f"{where}: {keys['obs']} must be numbers, got {obs[1]} {obs[0]}")


def _assemble(
    arrays: dict[str, Array], present: set[str], where: str, about: Mapping[str, Any], notes: tuple[str, ...]
) -> tuple[Transitions, Array | None]:
    """Flags as booleans, every end of a trajectory marked, a true successor in every row; and the rows without one."""
    obs, next_obs, actions = arrays["obs"], arrays["next_obs"], arrays["actions"]
    rows = len(obs)
    ends: dict[str, Any] = {
        field: flags(arrays[field], ALIASES[field][0], where) if field in present else np.zeros(rows, np.bool_)
        for field in ("terminated", "truncated")
    }
    if actions.dtype.kind != "f":
        actions = column(actions, "actions", where)
    elif actions.ndim == 1:
        actions = actions.reshape(-1, 1)
    if obs.ndim == 1 and obs.dtype.kind == "f" and (about.get("observation_space") or {}).get("shape") != []:
        obs, next_obs = obs.reshape(-1, 1), next_obs.reshape(-1, 1)  # a single number, and not the number of a state
    if "truncated" not in present:  # a trajectory went on elsewhere than in the next row
        ends["truncated"] = broken(obs, next_obs, STORED_TWICE) & ~ends["terminated"]
    lost = None if "next_obs" in present else successors(obs, next_obs, **ends)
    ends["truncated"][-1:] |= ~ends["terminated"][-1:]  # the end of the recording is an end
    rewards = column(arrays["rewards"], "rewards", where)
    return Transitions(obs, actions, rewards, next_obs, **ends, **about, notes=notes), lost


def _read_about(reader: Reader, where: str) -> dict[str, Any]:
    shape, dtype = reader.layout[ABOUT]
    if len(shape) != 1 or dtype != np.uint8 or shape[0] > LONGEST_ABOUT:
        raise UserError(f"{where}: {ABOUT} must be bytes, got {dtype} {shape}")
    data = np.zeros(shape, dtype)
    reader.read(ABOUT, data)
    try:
        values = json.loads(data.tobytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: {ABOUT} is not valid JSON") from error
    names = {"env_id": str, "observation_space": dict, "action_space": dict}
    if not isinstance(values, dict) or any(not isinstance(values.get(n), (k, type(None))) for n, k in names.items()):
        raise UserError(f"{where}: {ABOUT} must tell env_id, observation_space and action_space, got {shown(values)}")
    return {**{name: values.get(name) for name in names}, "env_id": clean_id(values.get("env_id"))}
