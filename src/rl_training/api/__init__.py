"""Agents that manage their own runs: learn, evaluate, predict, save, load, resume.

The classes follow from the registry of algorithms; type checkers read `__init__.pyi`.
"""

from rl_training.algorithms.registry import class_names
from rl_training.core.exports import lazy_exports

_EXPORTS = {
    **dict.fromkeys(class_names(), "rl_training.api.algorithms"),
    "Callback": "rl_training.run.callbacks",
    "ManagedAlgorithm": "rl_training.api.managed",
    "load": "rl_training.api.algorithms",
    "managed_class": "rl_training.api.algorithms",
}
__all__ = [*_EXPORTS]
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
