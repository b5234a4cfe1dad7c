"""Trains `dqn`, `c51_dqn`, `qr_dqn`, `iqn` and `rainbow_dqn`."""

from rl_training.run.trainers import trainer_for

train_dqn = trainer_for("dqn", "c51_dqn", "qr_dqn", "iqn", "rainbow_dqn")
