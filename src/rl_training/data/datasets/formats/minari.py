"""Minari datasets, read and written without Minari: one HDF5 group per episode, and `metadata.json`.

An episode of N steps has N + 1 observations, which include the successor of the last step.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from rl_training.core.checks import UserError, one_line, shown
from rl_training.data.datasets.array_store import Array
from rl_training.data.datasets.formats.hdf5 import dataset, fill, h5py_module, member, open_file, write_file
from rl_training.data.datasets.transitions import Transitions, discontinuous_rows
from rl_training.envs.minari_spaces import space_from_minari, space_to_minari
from rl_training.envs.spaces import ObservationCodec, space_from_dict
from rl_training.envs.spaces.trees import tree
from rl_training.files.atomic import read_json, to_json

FILE, METADATA = "main_data.hdf5", "metadata.json"
EPISODE = re.compile(r"episode_(\d{1,9})")
PARTS = ("observations", "actions", "rewards", "terminations", "truncations")
MINARI_VERSION = "0.5.3"  # of the written format


def minari_root() -> Path:
    """The folder of local Minari datasets; for a user without a home one that does not exist."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or os.path.expanduser("~/.minari/datasets"))


def find_minari(name: str | Path) -> Path | None:
    """The data folder of a local dataset, by its path or its id; None if there is none."""
    places = [Path(name)]
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)*", str(name)) and ".." not in Path(name).parts:
        places.append(minari_root() / name)
    for place in places:
        for folder in (place / "data", place):
            if (folder / METADATA).is_file():
                return folder
    return None


class MinariReader:
    """All episodes concatenated, as flat arrays."""

    def __init__(self, folder: Path, file: Any) -> None:
        self.path, self.notes = folder, tuple[str, ...]()
        self.metadata = _read_metadata(folder)
        self._codec = _tree_codec(self.metadata.get("observation_space"), folder)
        numbers = sorted(int(found[1]) for name in file if (found := EPISODE.fullmatch(name)))
        if not numbers:
            raise UserError(f"{folder / FILE}: has no episodes")
        declared = self.metadata.get("total_episodes")
        if declared != len(numbers):
            raise UserError(f"{folder / METADATA}: declares {shown(declared)} episodes, {FILE} has {len(numbers)}")
        episodes = [self._episode(file, number) for number in numbers]
        self._episodes = [episode for episode in episodes if len(episode["actions"])]  # one may be empty
        if not self._episodes:
            raise UserError(f"{folder / FILE}: has no steps")
        self._lengths = [len(episode["actions"]) for episode in self._episodes]
        rows, first = sum(self._lengths), self._episodes[0]
        self.names, self.layout = PARTS, {}
        for name in PARTS:
            kinds = {(episode[name].shape[1:], episode[name].dtype) for episode in self._episodes}
            if len(kinds) > 1:
                raise UserError(f"{folder / FILE}: {name} differ in shape or type from one episode to another")
            self.layout[name] = ((rows, *first[name].shape[1:]), first[name].dtype.newbyteorder("="))
        self.layout["next_observations"] = self.layout["observations"]

    def _episode(self, file: Any, number: int) -> dict[str, Any]:
        where = f"{self.path / FILE}: episode_{number}"
        group = member(file, f"episode_{number}", str(self.path / FILE))
        if not isinstance(group, h5py_module().Group):
            raise UserError(f"{where} is not a group")
        episode = {name: self._array(group, name, where) for name in PARTS}
        lengths = {name: len(found) if found.shape else 0 for name, found in episode.items()}
        steps = lengths["actions"]
        if any(lengths[name] != steps + (name == "observations") for name in PARTS):
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise UserError(f"{where}: observations must be one more than the rest, got {found}")
        return episode

    def _array(self, group: Any, name: str, where: str) -> Any:
        if name == "observations" and self._codec is not None:
            return PackedObservations(self._codec, group, where)
        return dataset(group, name, where)

    def read(self, name: str, out: Array) -> None:
        source, first = ("observations", 1) if name == "next_observations" else (name, 0)
        start, cut = 0, 0
        for episode, steps in zip(self._episodes, self._lengths, strict=True):
            rows = out[start : start + steps]
            fill(episode[source], rows, first)
            if name == "truncations" and not rows[-1] and not episode["terminations"][-1]:
                rows[-1], cut = 1, cut + 1  # else its return would include the next episode
            if name == "terminations" and rows[:-1].any():
                row = start + int(np.argmax(rows))
                raise UserError(f"{self.path / FILE}: an episode continues after a terminal state (row {row})")
            start += steps
        if cut:
            self.notes = (f"trajectories that end without a terminal state or a time limit, taken as truncated: {cut}",)

    def about(self) -> dict[str, Any]:
        """The environment and its spaces, as far as the metadata has them."""
        spaces = {name: space_from_minari(self.metadata.get(name)) for name in ("observation_space", "action_space")}
        try:
            env_id = json.loads(self.metadata["env_spec"])["id"]
        except (KeyError, TypeError, ValueError, RecursionError):
            env_id = self.metadata.get("env_id")
        return {"env_id": clean_id(env_id), **spaces}


class PackedObservations:
    """The observations of one episode of a Dict or Tuple space, read as the library stores them."""

    def __init__(self, codec: ObservationCodec, episode: Any, where: str) -> None:
        self.codec, self.where = codec, f"{where}: observations"
        self._arrays = {leaf.path: self._array(episode, leaf.path) for leaf in codec.leaves}
        lengths = {len(array) if array.shape else 0 for array in self._arrays.values()}
        if len(lengths) > 1:
            raise UserError(f"{self.where} must have entries of the same length")
        self.shape, self.dtype = (lengths.pop(), *codec.shape), codec.dtype

    def _array(self, episode: Any, path: tuple[Any, ...]) -> Any:
        group, names = episode, ["observations", *map(_name_in_file, path)]
        for name in names[:-1]:
            group = member(group, name, self.where)
            if not isinstance(group, h5py_module().Group):
                raise UserError(f"{self.where}: {shown(name)} is not a group, which its Dict or Tuple space needs")
        return dataset(group, names[-1], self.where)

    def __len__(self) -> int:
        return int(self.shape[0])

    def read_direct(self, out: Array, selection: Any, place: Any) -> None:
        """Fill `out[place]` with the rows `selection`, as an HDF5 dataset does."""
        found = {path: array[selection] for path, array in self._arrays.items()}
        try:
            out[place] = self.codec.pack(tree(self.codec.space, (), found))
        except UserError as error:
            raise UserError(f"{self.where}: {error}") from error


def _name_in_file(key: Any) -> str:
    """The name of an entry: the key of a Dict, or `_index_0` for the first of a Tuple."""
    return key if isinstance(key, str) else f"_index_{key}"


def _tree_codec(text: Any, folder: Path) -> ObservationCodec | None:
    """The codec of a Dict or Tuple space; None for a space whose observations are one array."""
    described = space_from_minari(text)
    if described is None or described["kind"] not in ("dict", "tuple"):
        return None
    try:
        return ObservationCodec(space_from_dict(described))
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        raise UserError(f"{folder / METADATA}: its observation_space cannot be used: {one_line(error)}") from error


def clean_id(env_id: Any) -> str | None:
    """The environment id of a file as one printable line; None if it is not a string."""
    return one_line(env_id) or None if isinstance(env_id, str) else None


@contextmanager
def open_minari(folder: Path) -> Iterator[MinariReader]:
    """Open the data folder of a Minari dataset."""
    if not (folder / FILE).exists():
        raise UserError(f"{folder}: has no {FILE} (Minari's Arrow format is not supported)")
    with open_file(folder / FILE) as file:
        yield MinariReader(folder, file)


def _read_metadata(folder: Path) -> dict[str, Any]:
    metadata = read_json(folder / METADATA)
    if not isinstance(metadata, dict):
        raise UserError(f"{folder / METADATA}: must be a mapping")
    if metadata.get("data_format", "hdf5") != "hdf5":
        raise UserError(f"{folder}: is in Minari's {shown(metadata['data_format'])} format, only hdf5 is supported")
    return metadata


def write_minari(folder: Path, transitions: Transitions, where: str) -> None:
    """`folder/data` with the two files of a Minari dataset; `where` names the data in errors."""
    stops = transitions.stops()
    breaks = discontinuous_rows(transitions.obs, transitions.next_obs)
    breaks[stops] = False
    if breaks.any():
        row = int(np.argmax(breaks))
        raise UserError(
            f"{where}: row {row + 1} does not continue where row {row} ended, which Minari's episodes cannot hold; "
            "convert it to npz or hdf5"
        )
    data = folder / "data"
    data.mkdir(parents=True)
    observation_space = space_to_minari(transitions.observation_space, transitions.obs)
    codec = _tree_codec(json.dumps(observation_space), folder)

    def fill_file(file: Any, check: Callable[[], None]) -> None:
        start = 0
        for number, stop in enumerate(stops.tolist()):
            check()
            rows = slice(start, stop + 1)
            group = file.create_group(f"episode_{number}")
            group.attrs["id"], group.attrs["total_steps"] = number, stop + 1 - start
            observations = np.concatenate([transitions.obs[rows], transitions.next_obs[stop : stop + 1]])
            _write_observations(group, "observations", codec, observations)
            for name, array in (
                ("actions", transitions.actions),
                ("rewards", transitions.rewards),
                ("terminations", transitions.terminated),
                ("truncations", transitions.truncated),
            ):
                group.create_dataset(name, data=array[rows])
            start = stop + 1

    write_file(data / FILE, fill_file, track_order=True)
    metadata: dict[str, Any] = {
        "total_episodes": len(stops),
        "total_steps": len(transitions),
        "data_format": "hdf5",
        "jpeg_encoding": False,
        "dataset_id": Path(where).name,
        "minari_version": MINARI_VERSION,
        "observation_space": json.dumps(observation_space),
        "action_space": json.dumps(space_to_minari(transitions.action_space, transitions.actions)),
    }
    if transitions.env_id is not None:
        metadata["env_id"] = transitions.env_id
        spec = gymnasium.registry.get(transitions.env_id)  # not `gymnasium.spec`, which would import a module
        if spec is not None:
            with suppress(ValueError, TypeError):  # made by a function, as in the Control Suite, which has no JSON
                metadata["env_spec"] = spec.to_json()
    (data / METADATA).write_bytes(to_json(metadata, indent=1))


def _write_observations(group: Any, name: str, codec: ObservationCodec | None, rows: Array) -> None:
    """One array, or one for each entry of a Dict or Tuple, in groups of groups."""
    if codec is None:
        group.create_dataset(name, data=rows)
        return
    values = codec.decode_rows(rows)
    for leaf in codec.leaves:
        place = "/".join([name, *map(_name_in_file, leaf.path)])
        group.create_dataset(place, data=leaf.value_in(values).astype(leaf.space.dtype, copy=False))
