"""Trains `sac`."""

from rl_training.run.trainers import trainer_for

train_sac = trainer_for("sac")
