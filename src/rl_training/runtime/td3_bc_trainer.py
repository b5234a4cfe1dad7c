"""Trains `td3_bc`."""

from rl_training.run.trainers import trainer_for

train_td3_bc = trainer_for("td3_bc")
