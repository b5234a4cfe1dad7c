"""Data of an algorithm: replay buffers and datasets. Exports are imported on first use."""

from typing import TYPE_CHECKING

from rl_training.core.exports import lazy_exports

if TYPE_CHECKING:
    from rl_training.data.datasets.transition_dataset import TransitionDataset, compute_discounted_returns_to_go

__all__ = ["TransitionDataset", "compute_discounted_returns_to_go"]
__getattr__, __dir__ = lazy_exports(__name__, dict.fromkeys(__all__, "rl_training.data.datasets.transition_dataset"))
