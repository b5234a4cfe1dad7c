"""Networks. Each group of parameters an algorithm trains is a submodule with a plain `forward`."""

from rl_training.models.mlp_q_network import MLPQNetwork
from rl_training.models.mlp_sac import MLPSACModel

__all__ = ["MLPQNetwork", "MLPSACModel"]
