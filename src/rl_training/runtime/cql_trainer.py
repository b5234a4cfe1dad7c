"""Trains `cql`."""

from rl_training.algorithms.cql import CQL
from rl_training.runtime.trainer import trainer_for

train_cql = trainer_for(CQL)
