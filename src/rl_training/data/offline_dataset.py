"""Re-exports of `rl_training.data.datasets.transition_dataset`."""

from rl_training.data.datasets.transition_dataset import TransitionDataset, compute_discounted_returns_to_go

__all__ = ["TransitionDataset", "compute_discounted_returns_to_go"]
