"""Pinned names; they live in `rl_training.run.manager`."""

from rl_training.run.manager import DefaultExperimentManager

__all__ = ["DefaultExperimentManager"]
