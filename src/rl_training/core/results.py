"""Results of an update and of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class UpdateResult:
    """The result of one `update()`. Metrics are copied from the device on first access."""

    num_gradient_steps: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class TrainResult:
    """The result of a finished or stopped run."""

    run_dir: Path
    checkpoint_path: Path
    metrics: dict[str, Any] = field(default_factory=dict)
