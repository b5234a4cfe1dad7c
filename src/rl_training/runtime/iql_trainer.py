"""Trains `iql`."""

from rl_training.run.trainers import trainer_for

train_iql = trainer_for("iql")
