"""Trains `tqc`."""

from rl_training.algorithms.tqc import TQC
from rl_training.runtime.trainer import trainer_for

train_tqc = trainer_for(TQC)
