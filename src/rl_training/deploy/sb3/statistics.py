"""The statistics of VecNormalize, from arrays; its own file is a pickle, which is never loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError
from rl_training.data.datasets.formats.npz import NpzReader, open_npz
from rl_training.engine.engine import MAX_COUNT
from rl_training.files.atomic import read_bytes

Array = NDArray[Any]
FLOAT32 = np.finfo(np.float32)
NAMES = ("mean", "var", "count", "epsilon", "clip_obs")
CONVERT = (
    "vec = VecNormalize.load({path!r}, DummyVecEnv([lambda: gymnasium.make(ENV)]))",
    "stats = dict(mean=vec.obs_rms.mean, var=vec.obs_rms.var, count=vec.obs_rms.count)",
    'numpy.savez("stats.npz", **stats, epsilon=vec.epsilon, clip_obs=vec.clip_obs)',
)


@dataclass(frozen=True)
class Statistics:
    """The mean and scale of observations, and how many there were."""

    mean: Array
    scale: Array
    count: int


def read_statistics(path: Path, size: int, limit: float) -> Statistics:
    """The statistics of VecNormalize from an .npz file; a pickled one is rejected with the lines that convert it."""
    if not path.exists():
        raise UserError(f"{path}: no such file")
    if read_bytes(path.resolve(), first=2) != b"PK":
        code = [line.format(path=path.name) for line in CONVERT]
        raise UserError(f"{path}: must be an .npz file; loading a pickle runs code. Convert it:", code=code)
    with open_npz(path, NAMES) as reader:
        mean, var = _numbers(reader, "mean", size), _numbers(reader, "var", size)
        count, epsilon, clip = (_number(reader, *one) for one in (("count", 1), ("epsilon", 1e-8), ("clip_obs", limit)))
    if not ((np.abs(mean) <= FLOAT32.max).all() and ((var >= 0) & (var < math.inf)).all()):
        raise UserError(f"{path}: mean and var must be finite in float32, var >= 0")
    if not 0 <= count < MAX_COUNT:
        raise UserError(f"{path}: count must be >= 0 and < {MAX_COUNT}, got {count:g}")
    if not 0 <= epsilon < math.inf:
        raise UserError(f"{path}: epsilon must be >= 0, got {epsilon:g}")
    if clip != limit:
        raise UserError(f"{path}: clip_obs must be {limit:g}, which is fixed here, got {clip:g}")
    if not (var + epsilon >= FLOAT32.tiny).all():
        raise UserError(f"{path}: var + epsilon must be > 0, since observations are divided by its root")
    return Statistics(mean, 1 / np.sqrt(var + epsilon), max(1, int(count)))


def _numbers(reader: NpzReader, name: str, size: int) -> Array:
    """An array of `size` numbers in whatever shape; its own is compared before memory is allocated."""
    if name not in reader.layout:
        raise UserError(f"{reader.path}: must be an .npz file with mean, var and count, it has no {name}")
    shape, dtype = reader.layout[name]
    if math.prod(shape) != size:
        raise UserError(f"{reader.path}: {name} must be {size} numbers, got an array of shape {shape}")
    found = np.zeros(shape, dtype)
    reader.read(name, found)
    return found.reshape(-1).astype(np.float64)


def _number(reader: NpzReader, name: str, default: float) -> float:
    return float(_numbers(reader, name, 1)[0]) if name in reader.layout else default
