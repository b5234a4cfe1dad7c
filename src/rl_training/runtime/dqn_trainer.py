"""Trains `dqn`."""

from rl_training.algorithms.dqn import DQN
from rl_training.runtime.trainer import trainer_for

train_dqn = trainer_for(DQN)
