"""Curves of the library's own run directories, and names for runs that differ in their settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.config.yaml_loading import load_yaml
from rl_training.core.checks import UserError
from rl_training.files.atomic import read_json
from rl_training.report.run_data import as_mapping, as_number, episode_returns, mean_of, merged_rows, planned_steps
from rl_training.studies.curves import RETURN, Curve, chosen_metric, make_curve

# Fields of a config, besides the algorithm's settings, that change what is learned.
TRAINING_FIELDS = ("total_timesteps", "num_envs", "started_from")
MAX_NAMED = 3  # settings in a name


def read_run(run_dir: Path, metric: str | None = None) -> list[Curve]:
    """One curve for each seed of a run: its evaluations, or a metric of metrics.jsonl. Failed seeds have none."""
    info = read_json(run_dir / "run.json")
    algo, env_id = (as_mapping(info).get(key) for key in ("algo", "env_id"))
    if not isinstance(algo, str) or not isinstance(env_id, str):
        raise UserError(f"{run_dir / 'run.json'}: not a run's record")
    begun = as_mapping(load_yaml(run_dir / "config.yaml").values)
    config = {**begun, "total_timesteps": planned_steps(as_mapping(info), begun)}
    known = {
        "metric": metric or RETURN,
        "source": str(run_dir),
        "settings": _settings(config),
        "task_settings": flattened(as_mapping(config.get("env_kwargs"))),
    }
    made = [
        make_curve(algo, env_id, seed, points, **known)
        for seed, points in _points(run_dir, metric).items()
        if str(seed) not in as_mapping(as_mapping(info).get("failed_seeds"))
    ]
    curves = [curve for curve in made if curve is not None]
    if not curves:
        raise UserError(f"{run_dir}: has no {'evaluations' if metric in (None, RETURN) else f'values of {metric}'}")
    return curves


def _points(run_dir: Path, metric: str | None) -> dict[int, list[tuple[float, float]]]:
    """The steps and values of each seed."""
    name = "evaluations.jsonl" if metric in (None, RETURN) else "metrics.jsonl"
    _check_lines(run_dir / name)
    rows = merged_rows(run_dir / name)
    found: dict[int, list[tuple[float, float]]] = {}
    if name == "metrics.jsonl":
        metric = chosen_metric((key for row in rows for key in row), metric, str(run_dir / name))
    for row in rows:
        returns = episode_returns(row)
        value = as_number(row.get(str(metric))) if name == "metrics.jsonl" else mean_of(returns) if returns else None
        if value is not None:
            found.setdefault(row["seed"], []).append((row["step"], value))
    return found


def _check_lines(path: Path) -> None:
    """Reject a file with a damaged line; the last line may have been cut short by a kill."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        try:
            json.loads(line)
        except (ValueError, RecursionError):
            raise UserError(f"{path}:{number}: damaged line") from None


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """What distinguishes the training of two runs of one algorithm: its settings, and fields that change learning."""
    fields = {key: config.get(key) for key in TRAINING_FIELDS}
    return {**flattened(as_mapping(config.get("algo_kwargs"))), **flattened(fields)}


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted name; those that are null are left out."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found.update(flattened(value, f"{name}."))
        elif value is not None:
            found[name] = value
    return found


def differences(many: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of the values in which some of the mappings differ, in their order."""
    names = dict.fromkeys(name for one in many for name in one)
    return [name for name in names if len({repr(one.get(name)) for one in many}) > 1]


def named_apart(curves: Iterable[Curve]) -> list[Curve]:
    """The curves with distinct names for distinct settings: `dqn (gamma=0.9)`; the same for environments."""
    found = list(curves)
    for attribute, settings, within in (("task", "task_settings", ()), ("name", "settings", ("task",))):
        groups: dict[tuple[str, ...], list[int]] = {}
        for index, one in enumerate(found):
            key = (getattr(one, attribute), *(getattr(one, other) for other in within))
            groups.setdefault(key, []).append(index)
        for key, members in groups.items():
            labels = _labels([getattr(found[index], settings) for index in members])
            for index, label in zip(members, labels, strict=True):
                named: dict[str, Any] = {attribute: f"{key[0]}{label}"}
                found[index] = replace(found[index], **named)
    return found


def _labels(many: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each mapping what tells it from the others: ` (gamma=0.9)`, or nothing where all are equal."""
    names = differences(many)
    if not names:
        return [""] * len(many)
    shown = [", ".join(f"{name}={_short(one.get(name))}" for name in names[:MAX_NAMED]) for one in many]
    kinds = [repr({name: one.get(name) for name in names}) for one in many]
    if len(set(shown)) == len(set(kinds)):
        return [f" ({text})" for text in shown]
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds), 1)}
    return [f" ({text}, variant {numbers[kind]})" for text, kind in zip(shown, kinds, strict=True)]


def _short(value: Any) -> str:
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
