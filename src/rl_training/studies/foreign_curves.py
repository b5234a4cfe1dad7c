"""Curves of other libraries: Stable-Baselines3's monitor.csv and evaluations.npz, and TensorBoard's event files."""

from __future__ import annotations

import csv
import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.core.checks import UserError, one_line
from rl_training.files.archives import open_archive, open_member
from rl_training.files.npy import Array, read_array
from rl_training.studies.curves import RETURN, Curve, chosen_metric, make_curve

MAX_ARRAY_BYTES = 2**28
MONITOR_WINDOW = 100  # episodes of a training return, as in Stable-Baselines3's rollout/ep_rew_mean
ZOO_FOLDER = re.compile(r"(?P<task>.+)_(?P<seed>\d+)")  # RL Zoo: ALGO/ENV_N/
CLEANRL_FOLDER = re.compile(r"(?P<task>.+?)__(?P<name>.+)__(?P<seed>\d+)__\d+")  # ENV__EXP__SEED__TIME
LOG_FOLDERS = ("eval", "monitor", "logs", "tensorboard", "tb")  # folders that say nothing about the run


@dataclass(frozen=True)
class Origin:
    """What the folder of a file says about it."""

    name: str
    task: str | None
    seed: int | None


def origin_of(path: Path) -> Origin:
    """The algorithm, task and seed of a file by its folder, as RL Zoo and CleanRL name folders."""
    folder = path.absolute().parent
    while folder.name.lower() in LOG_FOLDERS and folder.parent != folder:
        folder = folder.parent
    if found := CLEANRL_FOLDER.fullmatch(folder.name):
        return Origin(found["name"], found["task"], int(found["seed"]))
    if (found := ZOO_FOLDER.fullmatch(folder.name)) and "-v" in found["task"]:
        return Origin(folder.parent.name, found["task"], int(found["seed"]))
    number = re.search(r"(?:seed|_|-)_?(\d+)$", folder.name)
    return Origin(folder.name, None, int(number[1]) if number else None)


def read_monitor(path: Path, env: str | None = None) -> list[Curve]:
    """The training returns of a `monitor.csv`: means of the last 100 episodes."""
    try:
        head, *lines = path.read_text(encoding="utf-8").splitlines()
        about = json.loads(head.lstrip("#"))
        rows = [(float(row["r"]), int(row["l"])) for row in csv.DictReader(lines)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error) as error:
        raise UserError(f"{path}: not a monitor.csv of Stable-Baselines3 ({one_line(error)})") from error
    returns, steps = np.array([row[0] for row in rows]), np.cumsum([row[1] for row in rows])
    sums = np.concatenate([[0.0], np.cumsum(returns)])
    counts = np.minimum(np.arange(1, len(returns) + 1), MONITOR_WINDOW)
    last = np.arange(1, len(returns) + 1)
    means = (sums[last] - sums[last - counts]) / np.maximum(counts, 1)
    named = about.get("env_id") if isinstance(about, dict) else None
    return _curves(path, env or (str(named) if named else None), zip(steps, means, strict=True), "rollout/ep_rew_mean")


def read_evaluations(path: Path, env: str | None = None) -> list[Curve]:
    """The mean returns of an `evaluations.npz`; object arrays, which would run code, are rejected."""
    wrong = f"{path}: not an evaluations.npz of Stable-Baselines3"
    with open_archive(path, wrong) as archive:
        steps, results = (_array(archive, name, wrong) for name in ("timesteps", "results"))
    if steps.ndim != 1 or results.ndim < 1 or len(steps) != len(results) or results.size == 0:
        raise UserError(f"{wrong} (timesteps are of shape {steps.shape}, results of {results.shape})")
    means = results.reshape(len(steps), -1).astype(np.float64).mean(axis=1)
    return _curves(path, env or _neighbours_task(path), zip(steps.tolist(), means.tolist(), strict=True), RETURN)


def _array(archive: zipfile.ZipFile, name: str, wrong: str) -> Array:
    member, where = f"{name}.npy", f"{wrong}: {name}"
    if member not in archive.namelist():
        raise UserError(f"{wrong} (it has no {name})")
    size = archive.getinfo(member).file_size
    if size > MAX_ARRAY_BYTES:  # before it is unpacked
        raise UserError(f"{where} has {size} bytes, at most {MAX_ARRAY_BYTES} are expected")
    with open_member(archive, member, where) as file:
        return read_array(file, size, where)


def read_events(path: Path, metric: str | None = None, env: str | None = None) -> list[Curve]:
    """One scalar of a TensorBoard event file (extra `tensorboard`)."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise UserError(f"{path}: reading it needs TensorBoard; pip install 'rl-training[tensorboard]'") from error
    scalars: dict[str, list[tuple[float, float]]] = {}
    try:
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.HasField("simple_value"):
                    number = value.simple_value
                elif value.HasField("tensor") and value.metadata.plugin_data.plugin_name in ("scalars", ""):
                    array = make_ndarray(value.tensor)
                    if array.size != 1 or array.dtype.kind not in "fiu":
                        continue
                    number = float(array.reshape(()))
                else:
                    continue
                scalars.setdefault(value.tag, []).append((event.step, number))
    except Exception as error:  # protobuf and TensorBoard have errors of their own for damaged files
        raise UserError(f"{path}: not a TensorBoard event file ({one_line(error)})") from error
    chosen = chosen_metric(scalars, metric, str(path))
    return _curves(path, env or _neighbours_task(path), scalars[chosen], chosen)


def _neighbours_task(path: Path) -> str | None:
    """The environment that a `monitor.csv` beside the file names."""
    for neighbour in sorted(path.parent.glob("*monitor.csv"))[:1]:
        try:
            with neighbour.open(encoding="utf-8") as file:
                about = json.loads(file.readline().lstrip("#"))
            return str(about["env_id"]) if about.get("env_id") else None
        except (OSError, ValueError, KeyError, AttributeError):
            return None
    return None


def _curves(path: Path, task: str | None, points: Any, metric: str) -> list[Curve]:
    origin = origin_of(path)
    task = task or origin.task
    if task is None:
        raise UserError(f"{path}: does not name its environment; give it with env=...")
    seed = -1 if origin.seed is None else origin.seed  # counted up by `collect`
    curve = make_curve(origin.name, task, seed, points, metric=metric, source=str(path))
    if curve is None:
        raise UserError(f"{path}: has no values of {metric}")
    return [curve]
