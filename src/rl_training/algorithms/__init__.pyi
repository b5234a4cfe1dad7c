# Written by scripts/stubs.py from the registry of algorithms: `make stubs`.

from rl_training.algorithms.bc import BC as BC
from rl_training.algorithms.c51_dqn import C51DQN as C51DQN
from rl_training.algorithms.cql import CQL as CQL
from rl_training.algorithms.cql import cql_loss as cql_loss
from rl_training.algorithms.dqn import DQN as DQN
from rl_training.algorithms.dqn import dqn_loss as dqn_loss
from rl_training.algorithms.drq import DrQ as DrQ
from rl_training.algorithms.drq import drq_loss as drq_loss
from rl_training.algorithms.drqv2 import DrQv2 as DrQv2
from rl_training.algorithms.drqv2 import drqv2_loss as drqv2_loss
from rl_training.algorithms.iql import IQL as IQL
from rl_training.algorithms.iql import iql_loss as iql_loss
from rl_training.algorithms.iqn import IQN as IQN
from rl_training.algorithms.qr_dqn import QRDQN as QRDQN
from rl_training.algorithms.rainbow_dqn import RainbowDQN as RainbowDQN
from rl_training.algorithms.redq import REDQ as REDQ
from rl_training.algorithms.redq import redq_loss as redq_loss
from rl_training.algorithms.sac import SAC as SAC
from rl_training.algorithms.sac import sac_loss as sac_loss
from rl_training.algorithms.td3 import TD3 as TD3
from rl_training.algorithms.td3_bc import TD3BC as TD3BC
from rl_training.algorithms.tqc import TQC as TQC
from rl_training.algorithms.tqc import tqc_loss as tqc_loss
