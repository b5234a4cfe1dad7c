"""Seeds whose losses are no longer numbers."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import Any

from rl_training.algorithms.base import Learner


def newly_diverged_seeds(learner: Learner, known: Container[str], step: int) -> dict[str, dict[str, Any]]:
    """By seed, those not known yet: the update, the losses that were not finite first and all metrics, for JSON."""
    found: dict[str, dict[str, Any]] = {}
    updates = learner.nonfinite_updates() if learner.update_count else []
    for index, (seed, update) in enumerate(zip(learner.seeds, updates, strict=False)):
        if update >= 0 and str(seed) not in known:
            names, metrics = learner.failure(index)
            found[str(seed)] = {
                "update": update,
                "step": step,
                "reason": f"{', '.join(names)} became NaN or infinite",
                "metrics": {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()},
            }
    return found
