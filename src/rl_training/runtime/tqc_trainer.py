"""Trains `tqc`."""

from rl_training.run.trainers import trainer_for

train_tqc = trainer_for("tqc")
