"""Trains `drqv2`."""

from rl_training.algorithms.drqv2 import DrQv2
from rl_training.run.run import trainer_for

train_drqv2 = trainer_for(DrQv2)
