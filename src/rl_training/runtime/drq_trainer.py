"""Trains `drq`."""

from rl_training.algorithms.drq import DrQ
from rl_training.run.run import trainer_for

train_drq = trainer_for(DrQ)
