"""The registry of algorithms: one line each, imported on first use.

Derived from it: the managed classes, the exports of `rl_training`, `rl_training.api` and `rl_training.algorithms`, the
trainer modules, and the stubs for type checkers (`make stubs`).
"""

from __future__ import annotations

import importlib
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
    "ppo": "rl_training.algorithms.ppo:PPO",
    "a2c": "rl_training.algorithms.a2c:A2C",
    "pqn": "rl_training.algorithms.pqn:PQN",
    "sac": "rl_training.algorithms.sac:SAC",
    "discrete_sac": "rl_training.algorithms.discrete_sac:DiscreteSAC",
    "td3": "rl_training.algorithms.td3:TD3",
    "tqc": "rl_training.algorithms.tqc:TQC",
    "redq": "rl_training.algorithms.redq:REDQ",
    "crossq": "rl_training.algorithms.crossq:CrossQ",
    "flashsac": "rl_training.algorithms.flashsac:FlashSAC",
    "droq": "rl_training.algorithms.droq:DroQ",
    "drq": "rl_training.algorithms.drq:DrQ",
    "drqv2": "rl_training.algorithms.drqv2:DrQv2",
    "bc": "rl_training.algorithms.bc:BC",
    "iql": "rl_training.algorithms.iql:IQL",
    "cql": "rl_training.algorithms.cql:CQL",
    "td3_bc": "rl_training.algorithms.td3_bc:TD3BC",
}
# Further algorithms that a training function accepts.
SHARED_TRAINERS = {"dqn": ("c51_dqn", "qr_dqn", "iqn", "rainbow_dqn")}
ENTRY_POINT_GROUP = "rl_training.algorithms"


def algorithm_names() -> tuple[str, ...]:
    """Names of the built-in algorithms, then of those that installed packages register."""
    return (*ALGORITHMS, *sorted(set(_third_party()) - set(ALGORITHMS)))


def _third_party() -> dict[str, str]:
    import importlib.metadata  # slow to import, and `import rl_training` imports this file

    return {point.name: point.value for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}


def learner_class(name: str) -> type[Learner]:
    """The learner of an algorithm; imports its module."""
    target = ALGORITHMS.get(name) or _third_party().get(name)
    if target is None:
        names = algorithm_names()
        raise UserError(f"algo must be one of {', '.join(names)}, got {name!r}{did_you_mean(name, names)}")
    module, _, attribute = target.partition(":")
    cls: type[Learner] = getattr(importlib.import_module(module), attribute)
    return cls


def class_names() -> dict[str, str]:
    """The built-in algorithms by the name of their class, which the learner and the managed class share."""
    return {target.partition(":")[2]: name for name, target in ALGORITHMS.items()}


def algorithm_of_class(class_name: str) -> str | None:
    """The algorithm whose class has this name; a built-in one comes first."""
    if class_name in class_names():
        return class_names()[class_name]
    return next((name for name, target in _third_party().items() if target.partition(":")[2] == class_name), None)


def learner_modules() -> dict[str, str]:
    """The module of each name that a built-in algorithm may export: its class and `<name>_loss`."""
    modules: dict[str, str] = {}
    for name, target in ALGORITHMS.items():
        module, _, cls = target.partition(":")
        modules |= {cls: module, f"{name}_loss": module}
    return modules


def learner_exports() -> list[str]:
    """The names that the built-in algorithms export; imports all their modules."""
    return [name for name, module in learner_modules().items() if hasattr(importlib.import_module(module), name)]
