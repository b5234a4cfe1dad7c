"""The training function of one algorithm, or of a family that shares it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.results import TrainResult
from rl_training.run.run import train

TrainFunction = Callable[..., TrainResult]  # with the arguments of `train`


def trainer_for(*names: str) -> TrainFunction:
    """`train`, restricted to configs of these algorithms."""

    @wraps(train)
    def train_one(config: TrainConfig, *arguments: Any, **keywords: Any) -> TrainResult:
        if config.algo not in names:
            raise UserError(f"algo must be {' or '.join(names)}, got {config.algo!r}")
        return train(config, *arguments, **keywords)

    return train_one
