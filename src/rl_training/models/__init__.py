"""Networks. Each group of parameters is a submodule with a plain `forward`."""

from rl_training.models.actor_critic import ActorCriticModel
from rl_training.models.cnn.drq import CNNDrQModel
from rl_training.models.cnn.drqv2 import CNNDrQv2Model
from rl_training.models.mlp_c51_q_network import MLPC51QNetwork
from rl_training.models.mlp_crossq import MLPCrossQModel
from rl_training.models.mlp_discrete_sac import MLPDiscreteSACModel
from rl_training.models.mlp_flashsac import MLPFlashSACModel
from rl_training.models.mlp_iql import MLPIQLModel
from rl_training.models.mlp_iqn_q_network import MLPIQNQNetwork
from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.models.mlp_qr_q_network import MLPQRQNetwork
from rl_training.models.mlp_redq import MLPREDQModel
from rl_training.models.mlp_sac import MLPSACModel
from rl_training.models.mlp_td3 import MLPTD3Model
from rl_training.models.mlp_tqc import MLPTQCModel

__all__ = [
    "ActorCriticModel",
    "CNNDrQModel",
    "CNNDrQv2Model",
    "MLPC51QNetwork",
    "MLPCrossQModel",
    "MLPDiscreteSACModel",
    "MLPFlashSACModel",
    "MLPIQLModel",
    "MLPIQNQNetwork",
    "MLPQNetwork",
    "MLPQRQNetwork",
    "MLPREDQModel",
    "MLPSACModel",
    "MLPTD3Model",
    "MLPTQCModel",
]
