"""Trains `cql`."""

from rl_training.run.trainers import trainer_for

train_cql = trainer_for("cql")
