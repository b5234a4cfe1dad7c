"""Trains `iql`."""

from rl_training.algorithms.iql import IQL
from rl_training.run.run import trainer_for

train_iql = trainer_for(IQL)
