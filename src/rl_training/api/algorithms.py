"""One managed class per algorithm of the registry, created on first use; type checkers read `algorithms.pyi`.

The learners, with the losses, are in `rl_training.algorithms`.
"""

from typing import Any

from rl_training.algorithms.registry import algorithm_of_class, class_names, learner_class
from rl_training.api.managed import ManagedAlgorithm

__all__ = [*class_names(), "managed_class"]
_classes: dict[type, type[ManagedAlgorithm]] = {}  # by learner


def managed_class(algo: str) -> type[ManagedAlgorithm]:
    """The managed class of a built-in or installed algorithm: `managed_class("sac")` is `SAC`."""
    learner = learner_class(algo)
    if learner in _classes:
        return _classes[learner]
    settings = f"{learner.settings_type.__module__}.{learner.settings_type.__qualname__}"
    doc = f"{learner.title}.\n\nKeywords: the settings of `{settings}` and the fields of `TrainConfig`."
    made = type(learner.__name__, (ManagedAlgorithm,), {"__module__": __name__, "__doc__": doc, "algo_name": algo})
    return _classes.setdefault(learner, made)  # one class for all threads


def __getattr__(name: str) -> Any:
    algo = None if name.startswith("_") else algorithm_of_class(name)
    if algo is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return managed_class(algo)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
