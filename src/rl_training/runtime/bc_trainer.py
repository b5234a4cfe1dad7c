"""Trains `bc`."""

from rl_training.algorithms.bc import BC
from rl_training.runtime.trainer import trainer_for

train_bc = trainer_for(BC)
