"""Trains `td3`."""

from rl_training.run.trainers import trainer_for

train_td3 = trainer_for("td3")
