"""Trains `td3_bc`."""

from rl_training.algorithms.td3_bc import TD3BC
from rl_training.run.run import trainer_for

train_td3_bc = trainer_for(TD3BC)
