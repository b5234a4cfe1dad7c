"""Metrics of the last episodes, for host and device environments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = Sequence[float] | NDArray[Any]
WINDOW = 100  # episodes in a mean, as in Stable-Baselines3


def episode_metrics(returns: Numbers, lengths: Numbers, finished: int) -> dict[str, Any]:
    """The metrics of one seed: means over its last episodes (at most WINDOW), and the number of all finished ones."""
    return {
        "rollout/ep_rew_mean": float(np.mean(returns)) if len(returns) else None,
        "rollout/ep_len_mean": float(np.mean(lengths)) if len(lengths) else None,
        "time/episodes": finished,
    }


def info_number(info: Mapping[str, Any], name: str) -> float:
    """A number of an environment's info; NaN where there is none."""
    value = info.get(name) if isinstance(info, Mapping) else None
    if value is None or isinstance(value, (str, bytes)) or np.ndim(value):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def info_means(values: Mapping[str, Sequence[float]], prefix: str) -> dict[str, float]:
    """The mean of each name that has values: `is_success` as `<prefix>success_rate`, others as `<prefix><name>`."""
    names = {name: "success_rate" if name == "is_success" else name for name in values}
    return {f"{prefix}{names[name]}": float(np.mean(numbers)) for name, numbers in values.items() if len(numbers)}
