"""Agents that manage their own runs: learn, evaluate, predict, save, load, resume."""

from rl_training.api.algorithms import C51DQN, DQN, QRDQN, REDQ, SAC, TD3, TQC, DrQ, DrQv2, RainbowDQN
from rl_training.api.managed import ManagedAlgorithm

__all__ = ["C51DQN", "DQN", "QRDQN", "REDQ", "SAC", "TD3", "TQC", "DrQ", "DrQv2", "ManagedAlgorithm", "RainbowDQN"]
