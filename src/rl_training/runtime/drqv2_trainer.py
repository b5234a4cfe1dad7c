"""Trains `drqv2`."""

from rl_training.run.trainers import trainer_for

train_drqv2 = trainer_for("drqv2")
