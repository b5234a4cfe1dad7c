# Written by scripts/stubs.py from the registry of algorithms: `make stubs`.

from rl_training.api.algorithms import BC as BC
from rl_training.api.algorithms import C51DQN as C51DQN
from rl_training.api.algorithms import CQL as CQL
from rl_training.api.algorithms import DQN as DQN
from rl_training.api.algorithms import IQL as IQL
from rl_training.api.algorithms import IQN as IQN
from rl_training.api.algorithms import QRDQN as QRDQN
from rl_training.api.algorithms import REDQ as REDQ
from rl_training.api.algorithms import SAC as SAC
from rl_training.api.algorithms import TD3 as TD3
from rl_training.api.algorithms import TD3BC as TD3BC
from rl_training.api.algorithms import TQC as TQC
from rl_training.api.algorithms import DrQ as DrQ
from rl_training.api.algorithms import DrQv2 as DrQv2
from rl_training.api.algorithms import RainbowDQN as RainbowDQN
from rl_training.api.algorithms import load as load
from rl_training.api.managed import ManagedAlgorithm as ManagedAlgorithm
from rl_training.config.train_config import TrainConfig as TrainConfig
from rl_training.core.version import __version__ as __version__
from rl_training.report.metrics_frame import load_metrics as load_metrics
from rl_training.run.callbacks import Callback as Callback
from rl_training.run.ready_callbacks import Curriculum as Curriculum
from rl_training.run.ready_callbacks import RecordVideo as RecordVideo
from rl_training.run.ready_callbacks import SaveAgents as SaveAgents
from rl_training.run.ready_callbacks import StopAtReturn as StopAtReturn
from rl_training.run.ready_callbacks import StopWithoutImprovement as StopWithoutImprovement
