"""The objective of `tune`: the interquartile mean of the seeds' returns, less a penalty for their spread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rl_training.core.statistics import interquartile_mean
from rl_training.files.json_lines import read_rows

Rungs = list[tuple[int, float]]


def objective(means: Sequence[float], spread_penalty: float = 0.0) -> float:
    """The value of one evaluation, from the mean return of each seed."""
    return interquartile_mean(means) - spread_penalty * float(np.std(means))


def evaluations_of(run_dir: Path, seeds: int) -> list[tuple[int, list[float]]]:
    """The step of every complete evaluation of a run, with the mean return of each seed."""
    by_step: dict[int, dict[int, float]] = {}
    for row in read_rows(run_dir / "evaluations.jsonl"):
        by_step.setdefault(row["step"], {})[row["seed"]] = float(np.mean(row["returns"]))
    return [(step, list(found.values())) for step, found in sorted(by_step.items()) if len(found) == seeds]


def rungs_of(run_dir: Path, seeds: int, spread_penalty: float, last: int = 1) -> Rungs:
    """The value of a run at each of its evaluations; each seed's return is the mean of its `last` evaluations."""
    found = evaluations_of(run_dir, seeds)
    values: Rungs = []
    for index, (step, _) in enumerate(found):
        recent = [means for _, means in found[max(index + 1 - last, 0) : index + 1]]
        values.append((step, objective(np.mean(recent, axis=0).tolist(), spread_penalty)))
    return values
