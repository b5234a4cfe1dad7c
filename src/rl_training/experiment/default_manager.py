"""Re-exports of fixed public names from `rl_training.run.manager`."""

from rl_training.run.manager import DefaultExperimentManager

__all__ = ["DefaultExperimentManager"]
