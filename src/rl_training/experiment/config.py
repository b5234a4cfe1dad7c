"""Names that callers import from here; they live in `rl_training.config.train_config`."""

from rl_training.config.train_config import TrainConfig

__all__ = ["TrainConfig"]
