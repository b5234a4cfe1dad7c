"""Train, evaluate, run and resume reinforcement-learning agents."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rl_training.core.allocation import use_large_pages
from rl_training.core.numerics import pin_libraries
from rl_training.core.version import __version__

# Both before torch and numpy load, which read their environment once.
use_large_pages()
pin_libraries()

if TYPE_CHECKING:
    from rl_training.api import (
        BC,
        C51DQN,
        CQL,
        DQN,
        IQL,
        IQN,
        QRDQN,
        REDQ,
        SAC,
        TD3,
        TD3BC,
        TQC,
        Callback,
        DrQ,
        DrQv2,
        ManagedAlgorithm,
        RainbowDQN,
    )
    from rl_training.config.train_config import TrainConfig

__all__ = [
    "BC",
    "C51DQN",
    "CQL",
    "Callback",
    "DQN",
    "IQL",
    "IQN",
    "QRDQN",
    "REDQ",
    "SAC",
    "TD3",
    "TD3BC",
    "TQC",
    "DrQ",
    "DrQv2",
    "ManagedAlgorithm",
    "RainbowDQN",
    "TrainConfig",
    "__version__",
]


def __getattr__(name: str) -> Any:
    """Exports load on first use: `import rl_training` does not import torch."""
    if name == "TrainConfig":
        return importlib.import_module("rl_training.config.train_config").TrainConfig
    if name in __all__:
        return getattr(importlib.import_module("rl_training.api"), name)
    raise AttributeError(f"module 'rl_training' has no attribute {name!r}")
