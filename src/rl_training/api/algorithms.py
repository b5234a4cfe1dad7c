"""One managed class per algorithm of the registry, created on first use; type checkers read `algorithms.pyi`.

The learners, with the losses, are in `rl_training.algorithms`.
"""

from pathlib import Path
from typing import Any

from rl_training.algorithms.registry import algorithm_of_class, class_names, learner_class
from rl_training.api.managed import ManagedAlgorithm, load_arguments
from rl_training.api.signatures import MadeWhenRead, docstring, signature
from rl_training.config.objects import Objects
from rl_training.data.datasets.memory import Dataset
from rl_training.envs.host.factory import EnvFactory
from rl_training.run.agent import load_agent

__all__ = [*class_names(), "load", "managed_class"]
_classes: dict[type, type[ManagedAlgorithm]] = {}  # by learner


def managed_class(algo: str) -> type[ManagedAlgorithm]:
    """The managed class of a built-in or installed algorithm: `managed_class("sac")` is `SAC`."""
    learner = learner_class(algo)
    if learner in _classes:
        return _classes[learner]
    described = {"__doc__": MadeWhenRead(docstring), "__signature__": MadeWhenRead(signature)}
    made = type(learner.__name__, (ManagedAlgorithm,), {"__module__": __name__, "algo_name": algo, **described})
    return _classes.setdefault(learner, made)  # one class for all threads


def load(
    path: str | Path,
    env: str | EnvFactory | None = None,
    device: str = "cpu",
    *,
    env_id: str | None = None,
    env_factory: EnvFactory | None = None,
    dataset: Dataset | None = None,
    objects: Objects | None = None,
    **changes: Any,
) -> ManagedAlgorithm:
    """Load an agent file, a checkpoint or a run, whatever its algorithm; the arguments are those of `SAC.load`."""
    env, objects, changes = load_arguments(env, env_id, env_factory, objects, changes)
    agent = load_agent(path, device, objects)
    return managed_class(agent.config.algo).of(agent, path, env, dataset, objects, **changes)


def __getattr__(name: str) -> Any:
    algo = None if name.startswith("_") else algorithm_of_class(name)
    if algo is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return managed_class(algo)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
