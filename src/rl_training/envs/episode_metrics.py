"""The metrics of a run's last episodes, wherever they were counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = Sequence[float] | NDArray[Any]
WINDOW = 100  # episodes a mean is taken over, as in Stable-Baselines3


def episode_metrics(returns: Numbers, lengths: Numbers, finished: int) -> dict[str, Any]:
    """One seed's metrics: means over its last episodes, at most WINDOW, oldest first, of `finished` in all."""
    return {
        "rollout/ep_rew_mean": float(np.mean(returns)) if len(returns) else None,
        "rollout/ep_len_mean": float(np.mean(lengths)) if len(lengths) else None,
        "time/episodes": finished,
    }
