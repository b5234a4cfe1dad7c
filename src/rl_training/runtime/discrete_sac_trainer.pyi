# Written by scripts/stubs.py from the registry of algorithms: `make stubs`.

from rl_training.run.run import train

train_discrete_sac = train
