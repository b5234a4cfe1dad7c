"""Trains `redq`."""

from rl_training.run.trainers import trainer_for

train_redq = trainer_for("redq")
