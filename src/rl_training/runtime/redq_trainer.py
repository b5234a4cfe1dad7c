"""Trains `redq`."""

from rl_training.algorithms.redq import REDQ
from rl_training.run.run import trainer_for

train_redq = trainer_for(REDQ)
