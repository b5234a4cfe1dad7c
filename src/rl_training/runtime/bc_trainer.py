"""Trains `bc`."""

from rl_training.algorithms.bc import BC
from rl_training.run.run import trainer_for

train_bc = trainer_for(BC)
