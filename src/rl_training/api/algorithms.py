"""One managed class per algorithm. (The learners, which hold the maths, are in `rl_training.algorithms`.)"""

from rl_training.api.managed import ManagedAlgorithm


class DQN(ManagedAlgorithm):
    algo_name = "dqn"


class C51DQN(ManagedAlgorithm):
    algo_name = "c51_dqn"


class QRDQN(ManagedAlgorithm):
    algo_name = "qr_dqn"


class IQN(ManagedAlgorithm):
    algo_name = "iqn"


class RainbowDQN(ManagedAlgorithm):
    algo_name = "rainbow_dqn"


class SAC(ManagedAlgorithm):
    algo_name = "sac"


class TD3(ManagedAlgorithm):
    algo_name = "td3"


class TQC(ManagedAlgorithm):
    algo_name = "tqc"


class REDQ(ManagedAlgorithm):
    algo_name = "redq"


class BC(ManagedAlgorithm):
    algo_name = "bc"


class IQL(ManagedAlgorithm):
    algo_name = "iql"


class CQL(ManagedAlgorithm):
    algo_name = "cql"


class TD3BC(ManagedAlgorithm):
    algo_name = "td3_bc"


class DrQ(ManagedAlgorithm):
    algo_name = "drq"


class DrQv2(ManagedAlgorithm):
    algo_name = "drqv2"
