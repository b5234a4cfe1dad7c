"""Trains `dqn`, `c51_dqn`, `qr_dqn`, `iqn` and `rainbow_dqn`."""

from rl_training.algorithms.c51_dqn import C51DQN
from rl_training.algorithms.dqn import DQN
from rl_training.algorithms.iqn import IQN
from rl_training.algorithms.qr_dqn import QRDQN
from rl_training.algorithms.rainbow_dqn import RainbowDQN
from rl_training.run.run import trainer_for

train_dqn = trainer_for(DQN, C51DQN, QRDQN, IQN, RainbowDQN)
