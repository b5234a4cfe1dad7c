"""Which algorithms there are. Adding one is one line here; it loads when it is first asked for."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING

from rl_training.core.checks import UserError, did_you_mean

if TYPE_CHECKING:
    from rl_training.algorithms.base import Learner

ALGORITHMS = {
    "dqn": "rl_training.algorithms.dqn:DQN",
    "c51_dqn": "rl_training.algorithms.c51_dqn:C51DQN",
    "qr_dqn": "rl_training.algorithms.qr_dqn:QRDQN",
    "iqn": "rl_training.algorithms.iqn:IQN",
    "rainbow_dqn": "rl_training.algorithms.rainbow_dqn:RainbowDQN",
    "sac": "rl_training.algorithms.sac:SAC",
    "td3": "rl_training.algorithms.td3:TD3",
    "tqc": "rl_training.algorithms.tqc:TQC",
    "redq": "rl_training.algorithms.redq:REDQ",
    "drq": "rl_training.algorithms.drq:DrQ",
    "drqv2": "rl_training.algorithms.drqv2:DrQv2",
    "bc": "rl_training.algorithms.bc:BC",
    "iql": "rl_training.algorithms.iql:IQL",
    "cql": "rl_training.algorithms.cql:CQL",
    "td3_bc": "rl_training.algorithms.td3_bc:TD3BC",
}
ENTRY_POINT_GROUP = "rl_training.algorithms"


def algorithm_names() -> tuple[str, ...]:
    """Built in first, then those that installed packages register."""
    return (*ALGORITHMS, *sorted(set(_third_party()) - set(ALGORITHMS)))


def _third_party() -> dict[str, str]:
    return {point.name: point.value for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}


def learner_class(name: str) -> type[Learner]:
    place = ALGORITHMS.get(name) or _third_party().get(name)
    if place is None:
        names = algorithm_names()
        raise UserError(f"algo must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}")
    module, _, attribute = place.partition(":")
    cls: type[Learner] = getattr(importlib.import_module(module), attribute)
    return cls
