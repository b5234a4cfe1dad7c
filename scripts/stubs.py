"""Writes the type stubs of the names that are exported from the registry of algorithms.

python scripts/stubs.py            (`make stubs`; a test fails if a file is out of date)
"""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import rl_training
from rl_training import api
from rl_training.algorithms.registry import ALGORITHMS, class_names, learner_class, learner_exports, learner_modules
from rl_training.api.signatures import docstring, keywords
from rl_training.config.meanings import FieldMeaning

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


# The names in the signatures that every managed class has.
ALWAYS = {
    ("rl_training.api.managed", "ManagedAlgorithm"),
    ("rl_training.config.objects", "Objects"),
    ("rl_training.config.train_config", "TrainConfig"),
    ("rl_training.data.datasets.memory", "Dataset"),
    ("rl_training.envs.host.factory", "EnvFactory"),
    ("typing", "Any"),
    ("pathlib", "Path"),
}
LOAD = """\
def managed_class(algo: str) -> type[ManagedAlgorithm]: ...
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
) -> ManagedAlgorithm: ...
"""


def managed_classes() -> str:
    """The stub of the managed classes: every keyword with its type, default and meaning."""
    used = {pair for algo in ALGORITHMS for one in keywords(algo).values() for pair in names_in(one.type)}
    classes = [managed_class(cls, algo) for cls, algo in class_names().items()]
    return "\n".join([HEAD, *imports({*ALWAYS, *used}), "", *classes, LOAD])


def managed_class(cls: str, algo: str) -> str:
    doc = textwrap.indent(docstring(algo).replace("\\", "\\\\"), " " * 4)
    parameters = ["self", "env: str | TrainConfig | EnvFactory", "*"]
    parameters += ["dataset: Dataset | None = None"] if learner_class(algo).offline else []
    parameters += map(parameter, keywords(algo).values())
    lines = "".join(f"        {one},\n" for one in parameters)
    head = f'class {cls}(ManagedAlgorithm):\n    """{doc.strip()}\n    """\n'
    return f"{head}\n    def __init__(\n{lines}    ) -> None: ...\n"


def parameter(one: FieldMeaning) -> str:
    """A keyword with its type and default; a default that is no literal is left out, as stubs do."""
    plain = isinstance(one.default, (int, float, str, tuple, type(None)))
    return f"{one.name}: {one.type_text} = {one.default_text if plain else '...'}"


def names_in(hint: Any) -> Iterator[tuple[str, str]]:
    """Module and name of everything that an annotation needs imported."""
    arguments = hint if isinstance(hint, list) else typing.get_args(hint)
    for inner in arguments if typing.get_origin(hint) is not typing.Literal else ():
        yield from names_in(inner)
    if hint is Any or typing.get_origin(hint) is typing.Literal:
        yield "typing", "Any" if hint is Any else "Literal"
        return
    found = typing.get_origin(hint) or hint
    if isinstance(found, type) and found.__module__ not in ("builtins", "types", "typing"):
        yield "pathlib" if found is Path else found.__module__, found.__name__


def imports(names: Iterable[tuple[str, str]]) -> list[str]:
    """Import statements as the linter sorts them: the standard library, then the package."""
    modules: dict[str, list[str]] = {}
    for module, name in sorted(set(names), key=lambda pair: (pair[0], import_order(pair[1]))):
        modules.setdefault(module, []).append(name)
    lines = {module: f"from {module} import {', '.join(found)}" for module, found in modules.items()}
    own = [line for module, line in lines.items() if module.startswith("rl_training")]
    return [*(line for module, line in lines.items() if not module.startswith("rl_training")), "", *own]


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
