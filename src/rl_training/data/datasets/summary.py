"""Summaries of a dataset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rl_training.core.d4rl import normalized_score
from rl_training.data.datasets.array_store import Array, blocks
from rl_training.data.datasets.transitions import Transitions, mostly_single_rows


def trajectory_returns(transitions: Transitions) -> tuple[Array, Array]:
    """The sum of rewards and the length of every trajectory."""
    stops = transitions.stops()
    starts = np.concatenate([[0], stops[:-1] + 1])
    return np.add.reduceat(transitions.rewards.astype(np.float64), starts), stops - starts + 1


def summarize_data(transitions: Transitions, env_id: str | None = None) -> dict[str, Any]:
    """Sizes, returns, lengths and ranges of a dataset, as JSON values."""
    returns, lengths = trajectory_returns(transitions)
    env_id = env_id or transitions.env_id
    terminated = int(transitions.terminated.sum())
    return {
        "env_id": env_id,
        "sha256": transitions.sha256(),
        "transitions": len(transitions),
        "trajectories": len(returns),
        "terminal": terminated,
        "not_terminal": len(returns) - terminated,
        "bytes": sum(array.nbytes for array in transitions.arrays().values()),
        "returns": _spread(returns),
        "lengths": _spread(lengths),
        "d4rl_score": normalized_score(env_id, float(returns.mean())),
        "observations": _array(transitions.obs),
        "actions": {**_array(transitions.actions), "discrete": transitions.holds_choices},
        "rewards": _array(transitions.rewards),
        "notes": list(transitions.notes),
    }


def summary_for_record(transitions: Transitions) -> dict[str, Any]:
    """The dataset's entry in a run's record; without returns where the rows are not whole trajectories."""
    returns, _ = trajectory_returns(transitions)
    return {
        "sha256": transitions.sha256(),
        "transitions": len(transitions),
        "trajectories": len(returns),
        "returns": None if mostly_single_rows(transitions) else _spread(returns),
    }


def _spread(values: Array) -> dict[str, float]:
    measures: dict[str, Callable[[Array], Any]] = {"mean": np.mean, "std": np.std, "median": np.median}
    measures |= {"min": np.min, "max": np.max}
    return {name: float(measure(values)) for name, measure in measures.items()}


def _array(array: Array) -> dict[str, Any]:
    """Shape of a row, dtype and range, computed block by block, since the array may be memory-mapped."""
    pieces = [array[rows] for rows in blocks(array)]
    low, high = min(float(piece.min()) for piece in pieces), max(float(piece.max()) for piece in pieces)
    return {"shape": list(array.shape[1:]), "dtype": array.dtype.name, "min": low, "max": high}
