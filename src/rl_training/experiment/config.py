"""Re-exports of fixed public names from `rl_training.config.train_config`."""

from rl_training.config.train_config import TrainConfig

__all__ = ["TrainConfig"]
