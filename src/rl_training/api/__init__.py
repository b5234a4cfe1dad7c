"""Agents that manage their own runs: learn, evaluate, predict, save, load, resume."""

from rl_training.api.algorithms import (
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
    DrQ,
    DrQv2,
    RainbowDQN,
)
from rl_training.api.managed import ManagedAlgorithm
from rl_training.run.callbacks import Callback

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
]
