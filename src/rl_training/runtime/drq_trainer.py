"""Trains `drq`."""

from rl_training.run.trainers import trainer_for

train_drq = trainer_for("drq")
