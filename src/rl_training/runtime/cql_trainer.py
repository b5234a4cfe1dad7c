"""Trains `cql`."""

from rl_training.algorithms.cql import CQL
from rl_training.run.run import trainer_for

train_cql = trainer_for(CQL)
