"""Where batches come from. A name is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.data.datasets.transition_dataset import TransitionDataset, compute_discounted_returns_to_go

__all__ = ["TransitionDataset", "compute_discounted_returns_to_go"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("rl_training.data.datasets.transition_dataset"), name)
    raise AttributeError(f"module 'rl_training.data' has no attribute {name!r}")
