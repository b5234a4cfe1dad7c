"""Trains `bc`."""

from rl_training.run.trainers import trainer_for

train_bc = trainer_for("bc")
