"""Trains `sac`."""

from rl_training.algorithms.sac import SAC
from rl_training.run.run import trainer_for

train_sac = trainer_for(SAC)
