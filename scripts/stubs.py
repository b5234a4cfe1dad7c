"""Writes the type stubs of the names that are exported from the registry of algorithms.

python scripts/stubs.py            (`make stubs`; a test fails if a file is out of date)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import rl_training
from rl_training import api
from rl_training.algorithms.registry import ALGORITHMS, class_names, learner_class, learner_exports, learner_modules

PACKAGE = Path(rl_training.__file__).parent
HEAD = "# Written by scripts/stubs.py from the registry of algorithms: `make stubs`.\n"


def import_order(name: str) -> tuple[bool, bool, str]:
    """The sort key of imported names, as in the linter: constants, classes, functions."""
    return not name.isupper(), not name[0].isupper(), name.lower()


def exports(places: Mapping[str, str]) -> str:
    """A stub that exports each name from the module given for it."""
    lines = [
        f"from {module} import {name} as {name}"
        for module in sorted(set(places.values()))
        for name in sorted((name for name, place in places.items() if place == module), key=import_order)
    ]
    return "\n".join([HEAD, *lines, ""])


def managed_classes() -> str:
    """The stub of the managed classes."""
    head = f"{HEAD}\nfrom rl_training.api.managed import ManagedAlgorithm\n"
    titles = {cls: learner_class(algo).title for cls, algo in class_names().items()}
    classes = [f'class {cls}(ManagedAlgorithm):\n    """{title}."""\n' for cls, title in titles.items()]
    return "\n".join([head, *classes, "def managed_class(algo: str) -> type[ManagedAlgorithm]: ...\n"])


def trainer(algo: str) -> str:
    """The stub of a trainer module."""
    return f"{HEAD}\nfrom rl_training.run.run import train\n\ntrain_{algo} = train\n"


def stubs() -> dict[str, str]:
    """The text of every stub by its path in the package."""
    learners = learner_modules()
    return {
        "__init__.pyi": exports({**rl_training._EXPORTS, "__version__": "rl_training.core.version"}),
        "api/__init__.pyi": exports(api._EXPORTS),
        "api/algorithms.pyi": managed_classes(),
        "algorithms/__init__.pyi": exports({name: learners[name] for name in learner_exports()}),
        **{f"runtime/{algo}_trainer.pyi": trainer(algo) for algo in ALGORITHMS},
    }


def write() -> None:
    """Write every stub, and remove obsolete ones."""
    written = stubs()
    for path in PACKAGE.rglob("*.pyi"):
        if path.relative_to(PACKAGE).as_posix() not in written:
            path.unlink()
    for name, text in written.items():
        (PACKAGE / name).write_text(text)


if __name__ == "__main__":
    write()
