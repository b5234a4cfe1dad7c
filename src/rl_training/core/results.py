"""Results of an update and of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class UpdateResult:
    """What one `update()` did. Metrics are read from the device when they are looked at, not before."""

    num_gradient_steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class TrainResult:
    """What a finished (or stopped) run leaves behind."""

    run_dir: Path
    checkpoint_path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
