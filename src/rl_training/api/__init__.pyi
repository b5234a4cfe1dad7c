# Written by scripts/stubs.py from the registry of algorithms: `make stubs`.

from rl_training.api.algorithms import A2C as A2C
from rl_training.api.algorithms import BC as BC
from rl_training.api.algorithms import C51DQN as C51DQN
from rl_training.api.algorithms import CQL as CQL
from rl_training.api.algorithms import DQN as DQN
from rl_training.api.algorithms import IQL as IQL
from rl_training.api.algorithms import IQN as IQN
from rl_training.api.algorithms import PPO as PPO
from rl_training.api.algorithms import PQN as PQN
from rl_training.api.algorithms import QRDQN as QRDQN
from rl_training.api.algorithms import REDQ as REDQ
from rl_training.api.algorithms import SAC as SAC
from rl_training.api.algorithms import TD3 as TD3
from rl_training.api.algorithms import TD3BC as TD3BC
from rl_training.api.algorithms import TQC as TQC
from rl_training.api.algorithms import CrossQ as CrossQ
from rl_training.api.algorithms import DiscreteSAC as DiscreteSAC
from rl_training.api.algorithms import DroQ as DroQ
from rl_training.api.algorithms import DrQ as DrQ
from rl_training.api.algorithms import DrQv2 as DrQv2
from rl_training.api.algorithms import FlashSAC as FlashSAC
from rl_training.api.algorithms import RainbowDQN as RainbowDQN
from rl_training.api.algorithms import load as load
from rl_training.api.algorithms import managed_class as managed_class
from rl_training.api.managed import ManagedAlgorithm as ManagedAlgorithm
from rl_training.run.callbacks import Callback as Callback
