"""Trains `dqn`, `c51_dqn` and `qr_dqn`."""

from rl_training.algorithms.c51_dqn import C51DQN
from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.qr_dqn import QRDQN
from rl_training.runtime.trainer import trainer_for

train_dqn = trainer_for(DQN, C51DQN, QRDQN)
