"""The learners: one file per algorithm. A name is imported when it is first used.

What is exported follows from the registry; type checkers read `__init__.pyi`.
"""

from typing import Any

from rl_training.algorithms.registry import learner_exports, learner_modules
from rl_training.core.exports import lazy_exports

_find, _ = lazy_exports(__name__, learner_modules())


def __getattr__(name: str) -> Any:
    # Not a constant: whether an algorithm has a `<name>_loss` is only known after importing its module.
    return learner_exports() if name == "__all__" else _find(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *learner_exports()})
