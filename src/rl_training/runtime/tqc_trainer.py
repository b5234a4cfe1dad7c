"""Trains `tqc`."""

from rl_training.algorithms.tqc import TQC
from rl_training.run.run import trainer_for

train_tqc = trainer_for(TQC)
