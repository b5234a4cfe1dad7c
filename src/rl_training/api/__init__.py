"""Agents that manage their own runs: learn, evaluate, predict, save, load, resume."""

from rl_training.api.algorithms import DQN, SAC
from rl_training.api.managed import ManagedAlgorithm

__all__ = ["DQN", "SAC", "ManagedAlgorithm"]
