"""Mutated datasets: flipped, cut and spliced bytes, arrays of other shapes, dtypes and values, wrong metadata."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import hostile_data
import numpy as np
from fuzz_mutations import Touch, mutate_bytes, mutate_json

TYPES = ("f2", "f4", "f8", ">f4", "i1", "u1", "i8", "?", "c8", "S3", "U2", "M8[s]", "O")
VALUES = (np.nan, np.inf, -1.0, 2.0, 1e30, 0.5)
NAMES = ("obs", "next_obs", "dones", "truncations", "rl_training", "x", "", "../x", "actions/x")


def mutate_arrays(rng: random.Random, arrays: dict[str, Any]) -> dict[str, Any]:
    """Change one array, or add, remove or rename one."""
    arrays = dict(arrays)
    name = rng.choice(sorted(arrays))
    array, kind = np.atleast_1d(arrays[name]), rng.randrange(8)
    if kind == 0:
        del arrays[name]
    elif kind == 1:
        arrays[rng.choice(NAMES)] = arrays.pop(name) if rng.random() < 0.5 else array
    elif kind == 2:
        arrays[name] = _as_type(array, rng.choice(TYPES))
    elif kind == 3:
        arrays[name] = rng.choice((array[:-1], array[:0], array[:1], np.concatenate([array, array])))
    elif kind == 4:
        arrays[name] = rng.choice((array.reshape(-1), array[None], array[..., None], np.asfortranarray(array[:, None])))
    elif kind == 5:
        changed = _as_type(array, "f4").copy()
        changed.reshape(-1)[rng.randrange(max(changed.size, 1)) if changed.size else 0 :] = rng.choice(VALUES)
        arrays[name] = changed
    elif kind == 6:
        arrays["rl_training"] = np.frombuffer(json.dumps(mutate_json(rng, ABOUT)).encode(), np.uint8)
    else:
        arrays[name] = rng.choice((np.float32(1), np.zeros((6, 0)), np.array([Touch()], object), np.zeros(6, "V4")))
    return arrays


ABOUT = {
    "env_id": "Pendulum-v1",
    "observation_space": {"kind": "box", "shape": [2], "dtype": "float32", "low": ["-inf"], "high": ["inf"]},
    "action_space": {"kind": "discrete", "n": 3, "start": 0},
}


def _as_type(array: Any, name: str) -> Any:
    try:
        return array.astype(name)
    except (TypeError, ValueError):
        return np.zeros(array.shape, "f4")


def mutated_dataset(rng: random.Random, place: Path) -> Path:
    build: Callable[[random.Random, Path], Path] = rng.choice((_npz, _npz, _hdf5, _minari))
    return build(rng, place)


def _arrays(rng: random.Random) -> dict[str, Any]:
    arrays = hostile_data.good_arrays()
    for _ in range(rng.choice((0, 1, 1, 2))):
        arrays = mutate_arrays(rng, arrays)
    return arrays


def _npz(rng: random.Random, place: Path) -> Path:
    path, arrays = place / "data.npz", _arrays(rng)
    names = {name.replace("/", "_") or "empty": array for name, array in arrays.items()}
    rng.choice((np.savez, np.savez_compressed))(path, **names)
    return _flipped(rng, path)


def _hdf5(rng: random.Random, place: Path) -> Path:
    import h5py

    path = place / "data.hdf5"
    with h5py.File(path, "w") as file:
        for name, array in _arrays(rng).items():
            with suppress(TypeError, ValueError, OSError):  # objects, and types or names that HDF5 does not support
                file.create_dataset(name or "empty", data=array)
        if rng.random() < 0.2:
            put = rng.choice(
                (hostile_data.soft_link, hostile_data.virtual, hostile_data.plugin, hostile_data.huge_chunk)
            )
            file.pop("rewards", None)
            put(file, place)
    return _flipped(rng, path)


def _minari(rng: random.Random, place: Path) -> Path:
    folder = hostile_data.minari()(place) / "data"
    if rng.random() < 0.6:
        metadata = json.loads((folder / "metadata.json").read_text())
        (folder / "metadata.json").write_text(json.dumps(mutate_json(rng, metadata)))
    _flipped(rng, folder / rng.choice(("metadata.json", "main_data.hdf5")))
    return folder.parent


def _flipped(rng: random.Random, path: Path) -> Path:
    if rng.random() < 0.5:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    return path
