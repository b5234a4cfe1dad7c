"""Collecting curves from runs, folders of runs and other libraries' files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rl_training.core.checks import UserError, one_line
from rl_training.files.atomic import read_json
from rl_training.files.run_directory import is_locked
from rl_training.report.run_data import as_mapping
from rl_training.studies.curves import RETURN, Curve, read_csv
from rl_training.studies.foreign_curves import read_evaluations, read_events, read_monitor
from rl_training.studies.run_curves import named_apart, read_run

EVENTS = "events.out.tfevents."


@dataclass
class Collection:
    """Curves, and what was found on the way: problems (something is left out) and notes (nothing is)."""

    curves: list[Curve] = field(default_factory=list)
    runs: list[Path] = field(default_factory=list)  # the run directories among the sources
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def collect(
    paths: Sequence[Path | str], *, metric: str | None = None, env: str | None = None, allow_empty: bool = False
) -> Collection:
    """Curves of run directories, folders of them, CSV files and files of other libraries.

    `NAME=PATH` names the curves of a path. Sources that cannot be read are listed in `problems`; only if nothing is
    left, an error is raised, unless `allow_empty`. `env` is the environment of files that do not name theirs.
    """
    found = Collection()
    named: list[tuple[str | None, Curve]] = []
    for given in paths:
        name, path = _named(str(given))
        sources = list(_sources(path)) if path.is_dir() else [path]
        if not sources:
            found.problems.append(f"{path}: no runs and no curves in it")
        for source in sources:
            try:
                curves = _read(source, metric, env)
            except UserError as error:
                if source.is_dir() and is_locked(source):
                    found.notes.append(f"{source}: still running, without results yet")
                else:
                    found.problems.append(one_line(error))
                continue
            except OSError as error:
                found.problems.append(f"{source}: {error.strerror}")
                continue
            named += [(name, curve) for curve in curves]
            if source.is_dir():
                found.runs.append(source)
                found.notes += _notes(source)
    if not named and not allow_empty:
        raise UserError("\n".join(found.problems or found.notes) or "no runs to compare")
    free = named_apart(curve for name, curve in named if name is None)
    own = [replace(curve, name=name) for name, curve in named if name is not None]
    found.curves = _distinct(_numbered([*free, *own]), found.notes)
    metrics = {curve.metric for curve in found.curves}
    if len(metrics) > 1:
        found.notes.append(f"different metrics are compared: {', '.join(sorted(metrics))}")
    return found


def _named(text: str) -> tuple[str | None, Path]:
    name, separator, rest = text.partition("=")
    if separator and name and rest and not Path(text).exists() and "/" not in name:
        return name, Path(rest)
    return None, Path(text)


def _sources(folder: Path) -> Iterator[Path]:
    """Run directories and curve files under a folder; a run's own folders are not searched."""
    for place, folders, files in os.walk(folder):
        here = Path(place)
        if "run.json" in files or {"config.yaml", "metrics.jsonl"} <= set(files):
            folders.clear()
            yield here
            continue
        folders.sort()
        evaluations = [name for name in files if name == "evaluations.npz"]
        monitors = sorted(name for name in files if name.endswith("monitor.csv"))
        events = sorted(name for name in files if name.startswith(EVENTS))
        yield from (here / name for name in evaluations or monitors or events)


def _read(path: Path, metric: str | None, env: str | None) -> list[Curve]:
    if path.is_dir():
        return read_run(path, metric)
    if not path.exists():
        raise UserError(f"{path}: no such run or file")
    if path.name.endswith("monitor.csv"):
        return read_monitor(path, env)
    if path.suffix == ".csv":
        return read_csv(path, metric)
    if path.suffix == ".npz":
        return read_evaluations(path, env)
    if path.name.startswith(EVENTS):
        return read_events(path, metric, env)
    raise UserError(
        f"{path}: unknown kind of file; known are run directories, .csv, monitor.csv, evaluations.npz and {EVENTS}*"
    )


def _notes(run_dir: Path) -> list[str]:
    """What a reader of the tables should know about a run."""
    notes = [f"{run_dir}: still running; its curves end early"] if is_locked(run_dir) else []
    failed = as_mapping(as_mapping(read_json(run_dir / "run.json")).get("failed_seeds"))
    return notes + [f"{run_dir}: seed {seed} failed and is left out" for seed in failed]


def _numbered(curves: list[Curve]) -> list[Curve]:
    """Give seeds to curves without one: numbers that their variant does not have."""
    taken: dict[tuple[str, str], set[int]] = {}
    for one in curves:
        taken.setdefault((one.name, one.task), set()).add(one.seed)
    numbered = []
    for one in curves:
        seeds = taken[one.name, one.task]
        seed = one.seed if one.seed >= 0 else next(number for number in range(len(seeds) + 1) if number not in seeds)
        seeds.add(seed)
        numbered.append(replace(one, seed=seed))
    return numbered


def _distinct(curves: list[Curve], notes: list[str]) -> list[Curve]:
    """One curve for each seed of a variant: the longest, or else the first."""
    kept: dict[tuple[str, str, int], Curve] = {}
    twice: dict[tuple[str, str, str, str], list[int]] = {}
    for one in curves:
        key = one.name, one.task, one.seed
        other = kept.get(key)
        if other is None:
            kept[key] = one
            continue
        chosen = one if one.steps[-1] > other.steps[-1] else other
        left = other if chosen is one else one
        kept[key] = chosen
        twice.setdefault((one.name, one.task, chosen.source, left.source), []).append(one.seed)
    for (name, task, used, unused), seeds in twice.items():
        which = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
        notes.append(f"{name} on {task} has {which} twice: {used} is used, {unused} is not; NAME=PATH names them apart")
    return list(kept.values())


def of_metric(collection: Collection) -> str:
    """The metric of the curves, for titles."""
    metrics = sorted({curve.metric for curve in collection.curves})
    return metrics[0] if len(metrics) == 1 else RETURN
