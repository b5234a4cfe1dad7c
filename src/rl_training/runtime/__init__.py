"""Pinned names: the workflows, and `<algo>_trainer.train_<algo>` for every algorithm of the registry.

The trainer modules have no files: a finder makes them when they are imported. Type checkers read their stubs.
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
    """The algorithm that a module of this package trains, by the module's full name."""
    prefix, suffix = f"{__name__}.", "_trainer"
    algo = module.removeprefix(prefix).removesuffix(suffix)
    return algo if module == f"{prefix}{algo}{suffix}" and algo in algorithm_names() else None


class TrainerFinder(MetaPathFinder, Loader):
    """Imports `rl_training.runtime.<algo>_trainer`, for every registered algorithm."""

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
        # As if it were written in a file: shown by this name, and pickled by it.
        for attribute, value in {"__module__": module.__name__, "__name__": name, "__qualname__": name}.items():
            setattr(train, attribute, value)
        module.__doc__ = train.__doc__ = f"Train a new run of {', '.join(f'`{one}`' for one in accepted)}."
        setattr(module, name, train)


if not any(isinstance(finder, TrainerFinder) for finder in sys.meta_path):
    sys.meta_path.append(TrainerFinder())
