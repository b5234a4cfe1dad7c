"""Trains `td3`."""

from rl_training.algorithms.td3 import TD3
from rl_training.run.run import trainer_for

train_td3 = trainer_for(TD3)
