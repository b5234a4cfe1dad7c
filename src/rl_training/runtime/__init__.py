"""Re-exports of fixed public names: the workflows, and `<algo>_trainer.train_<algo>` for every algorithm.

The trainer modules have no files: a finder creates them on import. Type checkers read their stubs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

from rl_training.algorithms.registry import SHARED_TRAINERS, algorithm_names


def trained_algorithm(module: str) -> str | None:
    """The algorithm of a trainer module, given the module's full name; None for other modules."""
    prefix, suffix = f"{__name__}.", "_trainer"
    algo = module.removeprefix(prefix).removesuffix(suffix)
    return algo if module == f"{prefix}{algo}{suffix}" and algo in algorithm_names() else None


class TrainerFinder(MetaPathFinder, Loader):
    """An import finder for `rl_training.runtime.<algo>_trainer` of every registered algorithm."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if trained_algorithm(fullname) else None

    def exec_module(self, module: ModuleType) -> None:
        from rl_training.run.trainers import trainer_for

        algo = trained_algorithm(module.__name__)
        assert algo is not None
        accepted = (algo, *SHARED_TRAINERS.get(algo, ()))
        name = f"train_{algo}"
        train = trainer_for(*accepted)
        # As in a module with a file: shown and pickled by this name.
        for attribute, value in {"__module__": module.__name__, "__name__": name, "__qualname__": name}.items():
            setattr(train, attribute, value)
        module.__doc__ = train.__doc__ = f"Train a new run of {', '.join(f'`{one}`' for one in accepted)}."
        setattr(module, name, train)


if not any(isinstance(finder, TrainerFinder) for finder in sys.meta_path):
    sys.meta_path.append(TrainerFinder())
