"""Loading transitions from every file format and from arrays in memory.

The names, shapes and types of the arrays are checked first; then the memory is allocated and the arrays are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rl_training.core.checks import UserError, did_you_mean, one_line, shown
from rl_training.data.datasets.array_store import MEMORY_SHARE, Array, ArrayLayout, allocate
from rl_training.data.datasets.formats.hdf5 import open_hdf5
from rl_training.data.datasets.formats.minari import clean_id, find_minari, minari_root, open_minari
from rl_training.data.datasets.formats.npz import open_npz
from rl_training.data.datasets.memory import WHERE, Dataset, MemoryReader
from rl_training.data.datasets.transitions import (
    STORED_TWICE,
    Transitions,
    check_values,
    column,
    discontinuous_rows,
    fill_successors,
    flags,
)

# The names of each array: D4RL's name first, which is also written.
ALIASES = {
    "obs": ("observations", "obs"),
    "actions": ("actions",),
    "rewards": ("rewards",),
    "next_obs": ("next_observations", "next_obs"),
    "terminated": ("terminals", "terminated", "terminations", "dones"),
    "truncated": ("timeouts", "truncated", "truncations"),
}
ABOUT = "rl_training"  # an array of bytes: the environment and its spaces as JSON
MAX_ABOUT_BYTES = 1 << 24
KEYS = (*(key for keys in ALIASES.values() for key in keys), ABOUT)
SUFFIXES = {".npz": "npz", ".hdf5": "hdf5", ".h5": "hdf5"}
MAX_NAMES = 20  # listed in a message
ACTIONS = "actions must be numbers of shape (rows, n) or choices of shape (rows,)"


class NoSuchData(UserError):
    """The path of a dataset or its agent does not exist."""


class Reader(Protocol):
    """An open file: the shapes, dtypes and values of its arrays."""

    @property
    def layout(self) -> ArrayLayout: ...

    @property
    def names(self) -> Iterable[str]: ...  # all arrays of the file, readable or not

    def read(self, name: str, out: Array) -> None: ...


def load_transitions(
    path: str | Path, *, drop_nonfinite: bool = False, memory_share: float = MEMORY_SHARE
) -> Transitions:
    """Load and check an npz or HDF5 file or a local Minari dataset. Nothing in it is executed."""
    with open_reader(path) as reader:
        return _checked(reader, str(path), drop_nonfinite, memory_share)


def memory_transitions(
    dataset: Dataset,
    *,
    drop_nonfinite: bool = False,
    memory_share: float = MEMORY_SHARE,
    action_space: dict[str, Any] | None = None,
) -> Transitions:
    """Read and check a dataset in memory like a file with arrays of those names."""
    reader = MemoryReader(dataset, KEYS)
    return _checked(reader, WHERE, drop_nonfinite, memory_share, {"action_space": action_space})


def _checked(
    reader: Any, where: str, drop_nonfinite: bool, memory_share: float, known: Mapping[str, Any] | None = None
) -> Transitions:
    about = dict(known or {})
    if hasattr(reader, "about"):
        about = reader.about()
    elif ABOUT in reader.layout:
        about = _read_about(reader, where)
    arrays, present = _read(reader, where, memory_share, has_many_actions(about))
    transitions, lost = _assemble(arrays, present, where, about, getattr(reader, "notes", ()))
    return check_values(transitions, where, drop_nonfinite, lost=lost)


def has_many_actions(about: Mapping[str, Any]) -> bool:
    """Whether the action space is known to have choices in several columns, or more than one axis."""
    space = about.get("action_space") or {}
    shape = space.get("shape")
    several = isinstance(shape, list) and len(shape) > 1
    return several or space.get("kind") in ("multi_discrete", "multi_binary")


def open_reader(path: str | Path) -> AbstractContextManager[Any]:
    """Open a dataset by its path, or a Minari dataset by its id."""
    folder = find_minari(path)
    if folder is not None:
        return open_minari(folder)
    place = Path(path)
    if not place.exists():
        raise NoSuchData(f"{path}: no such dataset{_nearby(place)}")
    if place.is_dir():
        raise UserError(f"{path}: is a directory, and not a Minari dataset (no data/metadata.json)")
    suffix = place.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"{path}: a dataset must be {', '.join(SUFFIXES)} or a Minari folder, got {place.suffix!r}")
    if not place.is_file():
        raise UserError(f"{path}: not a regular file")
    return (open_npz if SUFFIXES[suffix] == "npz" else open_hdf5)(place, KEYS)


def _nearby(place: Path) -> str:
    beside = [path for path in _inside(place.parent) if path.suffix.lower() in SUFFIXES or path.is_dir()]
    ids = [] if place.is_absolute() else [path for path in _inside(minari_root() / place.parent) if path.is_dir()]
    return did_you_mean(place.name, [path.name for path in (*beside, *ids)])


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _read(
    reader: Reader, where: str, memory_share: float, many_actions: bool
) -> tuple[dict[str, Array], set[str]]:
    """The arrays by field, and the fields that the file has; `next_obs` is always allocated."""
    layout = reader.layout
    found = {field: next((key for key in keys if key in layout), None) for field, keys in ALIASES.items()}
    missing = [ALIASES[field][0] for field in ("obs", "actions", "rewards") if found[field] is None]
    if missing:
        raise UserError(f"{where}: has no {', '.join(missing)}; it has {_listed(reader.names) or 'no arrays'}")
    if found["terminated"] is None and found["truncated"] is None:
        raise UserError(f"{where}: has neither terminals nor timeouts, so the ends of episodes are unknown")
    if found["next_obs"] is None and found["truncated"] is None:
        raise UserError(
            f"{where}: has neither next_observations nor timeouts, so the observations after time limits are unknown"
        )
    keys = {field: key for field, key in found.items() if key is not None}
    _check_shapes({key: layout[key] for key in keys.values()}, layout[keys["obs"]], keys, where)
    if not many_actions:
        _check_actions(*layout[keys["actions"]], where)
    wanted = {field: layout[key] for field, key in keys.items()}
    wanted.setdefault("next_obs", layout[keys["obs"]])
    arrays = allocate(wanted, where, memory_share)
    for field, key in keys.items():
        reader.read(key, arrays[field])
    return arrays, set(keys)


def _listed(names: Iterable[str]) -> str:
    found = sorted(names)
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return one_line(", ".join(found[:MAX_NAMES])) + more


def _check_shapes(layout: ArrayLayout, obs: Any, keys: Mapping[str, str], where: str) -> None:
    for key, (shape, dtype) in layout.items():
        if not shape:
            raise UserError(f"{where}: {key} must be an array with a row for each transition, got a single {dtype}")
    lengths = {key: shape[0] for key, (shape, _) in layout.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key} {length}" for key, length in lengths.items())
        raise UserError(f"{where}: all arrays must have the same length, got {found}")
    if "next_obs" in keys and layout[keys["next_obs"]] != obs:
        (mine, my_type), (other, other_type) = obs, layout[keys["next_obs"]]
        raise UserError(
            f"{where}: {keys['obs']} is {my_type} {mine}, {keys['next_obs']} is {other_type} {other}: "
            "they must have the same shape and type"
        )
    shape, dtype = layout[keys["actions"]]
    if dtype.kind not in "fiu" or 0 in shape[1:]:
        raise UserError(f"{where}: {ACTIONS}, got {dtype} {shape}")
    if obs[1].kind == "b" or 0 in obs[0][1:]:
        raise UserError(f"{where}: {keys['obs']} must be numbers, got {obs[1]} {obs[0]}")


def _check_actions(shape: tuple[int, ...], dtype: np.dtype[Any], where: str) -> None:
    if (dtype.kind != "f" and shape[1:] not in ((), (1,))) or len(shape) > 2:
        raise UserError(f"{where}: {ACTIONS}, got {dtype} {shape}")


def _assemble(
    arrays: dict[str, Array], present: set[str], where: str, about: Mapping[str, Any], notes: tuple[str, ...]
) -> tuple[Transitions, Array | None]:
    """Transitions with boolean flags, all ends of trajectories and successors; and the rows without a successor."""
    obs, next_obs, actions = arrays["obs"], arrays["next_obs"], arrays["actions"]
    rows = len(obs)
    ends: dict[str, Any] = {
        field: flags(arrays[field], ALIASES[field][0], where) if field in present else np.zeros(rows, np.bool_)
        for field in ("terminated", "truncated")
    }
    if actions.dtype.kind != "f" and not has_many_actions(about):
        actions = column(actions, "actions", where)
    elif actions.ndim == 1:
        actions = actions.reshape(-1, 1)
    if obs.ndim == 1 and obs.dtype.kind == "f" and (about.get("observation_space") or {}).get("shape") != []:
        obs, next_obs = obs.reshape(-1, 1), next_obs.reshape(-1, 1)  # a single number, not the index of a state
    if "truncated" not in present:  # a trajectory that does not continue in the next row
        ends["truncated"] = discontinuous_rows(obs, next_obs, STORED_TWICE) & ~ends["terminated"]
    lost = None if "next_obs" in present else fill_successors(obs, next_obs, **ends)
    ends["truncated"][-1:] |= ~ends["terminated"][-1:]  # the end of the recording ends its episode
    rewards = column(arrays["rewards"], "rewards", where)
    return Transitions(obs, actions, rewards, next_obs, **ends, **about, notes=notes), lost


def _read_about(reader: Reader, where: str) -> dict[str, Any]:
    shape, dtype = reader.layout[ABOUT]
    if len(shape) != 1 or dtype != np.uint8 or shape[0] > MAX_ABOUT_BYTES:
        raise UserError(f"{where}: {ABOUT} must be bytes, got {dtype} {shape}")
    data = np.zeros(shape, dtype)
    reader.read(ABOUT, data)
    try:
        values = json.loads(data.tobytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: {ABOUT} is not valid JSON") from error
    names = {"env_id": str, "observation_space": dict, "action_space": dict}
    if not isinstance(values, dict) or any(not isinstance(values.get(n), (k, type(None))) for n, k in names.items()):
        raise UserError(f"{where}: {ABOUT} must have env_id, observation_space and action_space, got {shown(values)}")
    return {**{name: values.get(name) for name in names}, "env_id": clean_id(values.get("env_id"))}
