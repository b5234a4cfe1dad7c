"""The learners: one file per algorithm. A name is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rl_training.algorithms.registry import ALGORITHMS

if TYPE_CHECKING:
    from rl_training.algorithms.bc import BC
    from rl_training.algorithms.c51_dqn import C51DQN
    from rl_training.algorithms.cql import CQL, cql_loss
    from rl_training.algorithms.dqn import DQN, dqn_loss
    from rl_training.algorithms.drq import DrQ, drq_loss
    from rl_training.algorithms.drqv2 import DrQv2, drqv2_loss
    from rl_training.algorithms.iql import IQL, iql_loss
    from rl_training.algorithms.iqn import IQN
    from rl_training.algorithms.qr_dqn import QRDQN
    from rl_training.algorithms.rainbow_dqn import RainbowDQN
    from rl_training.algorithms.redq import REDQ, redq_loss
    from rl_training.algorithms.sac import SAC, sac_loss
    from rl_training.algorithms.td3 import TD3
    from rl_training.algorithms.td3_bc import TD3BC
    from rl_training.algorithms.tqc import TQC, tqc_loss

__all__ = [
    "BC",
    "C51DQN",
    "CQL",
    "DQN",
    "IQL",
    "IQN",
    "QRDQN",
    "REDQ",
    "SAC",
    "TD3",
    "TD3BC",
    "TQC",
    "DrQ",
    "DrQv2",
    "RainbowDQN",
    "cql_loss",
    "dqn_loss",
    "drq_loss",
    "drqv2_loss",
    "iql_loss",
    "redq_loss",
    "sac_loss",
    "tqc_loss",
]


def __getattr__(name: str) -> Any:
    for place in ALGORITHMS.values():
        module, _, cls = place.partition(":")
        if name in (cls, module.rpartition(".")[2] + "_loss"):
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'rl_training.algorithms' has no attribute {name!r}")
