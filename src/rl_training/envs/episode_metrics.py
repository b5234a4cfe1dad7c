"""Metrics of the last episodes, for host and device environments."""

from __future__ import annotations

from collections.abc import Sequence
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
