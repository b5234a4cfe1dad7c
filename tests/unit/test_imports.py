"""Imports go one way: a module may import its own room and the rooms below it, nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
ROOT = "rl_training"

# From the bottom to the top. Rooms on one line may not import each other.
ORDER: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("experiment (low)",),
    ("models", "data", "envs"),
    ("engine",),
    ("algorithms",),
    ("runtime",),
    ("experiment.registry",),
    ("experiment (top)",),
    ("api",),
    ("cli",),
    ("rl_training",),  # the lazy exports of the package itself, and __main__
)
RANK = {room: rank for rank, rooms in enumerate(ORDER) for room in rooms}

EXPERIMENT_LOW = {
    "config",
    "yaml_loading",
    "checkpoint_writing",
    "checkpointing",
    "files",
    "report",
    "report_curves",
    "report_data",
    "report_style",
    "tensor_files",
    "runs",
    "logging",
    "progress",
    "video",
    "charts",
}
EXPERIMENT_TOP = {"default_manager", "demo"}

TORCH_FREE_ROOMS = {"core", "experiment (low)", "envs"}
MAY_LOAD_TORCH = {f"{ROOT}.experiment.{name}" for name in ("checkpoint_writing", "checkpointing", "tensor_files")}


@dataclass(frozen=True)
class Import:
    """One imported name, e.g. `from rl_training.core import rng` gives module `rl_training.core`, name `rng`."""

    module: str
    name: str | None
    line: int
    in_function: bool
    type_checking: bool


def modules_under(source: Path) -> dict[str, Path]:
    """Every module of the package by dotted name."""
    found = {}
    for path in sorted((source / ROOT).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports_of(module: str, path: Path) -> Iterator[Import]:
    """Every import statement of a file, wherever it stands, with relative ones resolved."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]

    def visit(node: ast.AST, in_function: bool, type_checking: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno, in_function, type_checking)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(base, alias.name, node.lineno, in_function, type_checking)
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            for statement in node.body:
                yield from visit(statement, in_function, True)
            for statement in node.orelse:
                yield from visit(statement, in_function, type_checking)
        else:
            in_function = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for child in ast.iter_child_nodes(node):
                yield from visit(child, in_function, type_checking)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), False, False)


def room_of(module: str) -> str:
    """The room a module lives in."""
    parts = module.split(".")[1:]
    if not parts or parts[0] == "__main__":
        return ROOT
    if parts[0] == "resources":
        return "core"
    if parts[0] == "experiment":
        if len(parts) == 1 or parts[1] in EXPERIMENT_LOW:
            return "experiment (low)"
        if parts[1] in EXPERIMENT_TOP:
            return "experiment (top)"
        if parts[1] == "registry":
            return "experiment.registry"
    elif parts[0] in RANK:
        return parts[0]
    raise LookupError(f"{module} has no place in the import order: add it to the table in tests/test_imports.py")


def imported_room(item: Import, modules: dict[str, Path]) -> str | None:
    """The room an import reaches into; None when it is outside the package or only the version."""
    if item.module.split(".")[0] != ROOT:
        return None
    if item.name is not None and f"{item.module}.{item.name}" in modules:
        return room_of(f"{item.module}.{item.name}")
    if item.module == ROOT:
        return None if item.name == "__version__" else ROOT
    if item.module == f"{ROOT}.experiment" and item.name is not None:
        return "experiment (top)"  # a re-export may come from any half: within the library, import the module itself
    return room_of(item.module)


def back_edges(source: Path) -> list[str]:
    """Every import that goes up or sideways, as `file:line: room imports room`."""
    modules = modules_under(source)
    problems = []
    for module, path in modules.items():
        where = path.relative_to(source).as_posix()
        try:
            room = room_of(module)
        except LookupError as error:
            problems.append(f"{where}: {error}")
            continue
        for item in imports_of(module, path):
            # A package may name its own lazy exports for the type checker: that import never runs.
            own_export = path.name == "__init__.py" and f"{item.module}.".startswith(f"{module}.")
            if item.type_checking and own_export:
                continue
            try:
                target = imported_room(item, modules)
            except LookupError as error:
                problems.append(f"{where}:{item.line}: {error}")
                continue
            if target is not None and target != room and RANK[target] >= RANK[room]:
                problems.append(f"{where}:{item.line}: {room} imports {target}")
    return problems


def torch_loads(source: Path) -> list[str]:
    """Module-level imports of torch in rooms that must start without it."""
    problems = []
    for module, path in modules_under(source).items():
        try:
            if room_of(module) not in TORCH_FREE_ROOMS or module in MAY_LOAD_TORCH:
                continue
        except LookupError:
            continue  # back_edges reports it
        for item in imports_of(module, path):
            names = {item.module, f"{item.module}.{item.name}"}
            loads = item.module.split(".")[0] == "torch" or "safetensors.torch" in names
            if loads and not item.in_function and not item.type_checking:
                problems.append(f"{path.relative_to(source).as_posix()}:{item.line}: imports torch at module level")
    return problems


def test_no_import_goes_up_or_sideways() -> None:
    assert modules_under(SOURCE), f"no modules under {SOURCE}"
    assert back_edges(SOURCE) == []


def test_low_rooms_start_without_torch() -> None:
    assert torch_loads(SOURCE) == []


def plant(source: Path, name: str, text: str) -> None:
    """A small package with one module of interest; the others are there to be imported."""
    files = {
        "core/types.py": "",
        "experiment/runs.py": "",
        "experiment/default_manager.py": "",
        "data/recipes.py": "",
        "models/parts.py": "",
        "runtime/session.py": "",
    }
    for path, content in {**files, name: text}.items():
        file = source / ROOT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(content, encoding="utf-8")
    (source / ROOT / "__init__.py").touch()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("core/bad.py", "import rl_training.runtime.session", "core imports runtime"),
        ("core/bad.py", "from rl_training.runtime import session", "core imports runtime"),
        ("core/bad.py", "from ..runtime.session import run", "core imports runtime"),
        ("core/bad.py", "from .. import runtime", "core imports runtime"),
        ("core/bad.py", "def f():\n    from rl_training import runtime", "core imports runtime"),
        ("core/bad.py", "import rl_training", "core imports rl_training"),
        ("models/bad.py", "from rl_training.data import recipes", "models imports data"),
        ("experiment/config.py", "from . import default_manager", "experiment (low) imports experiment (top)"),
        ("experiment/config.py", "from . import DefaultManager", "experiment (low) imports experiment (top)"),
        ("experiment/__init__.py", "from .default_manager import run", "experiment (low) imports experiment (top)"),
        ("elsewhere/bad.py", "", "rl_training.elsewhere.bad has no place"),
    ],
)
def test_a_planted_back_edge_is_caught(tmp_path: Path, name: str, text: str, problem: str) -> None:
    plant(tmp_path, name, text)
    assert any(line.startswith(f"rl_training/{name}") and problem in line for line in back_edges(tmp_path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core/good.py", "import os\nfrom rl_training import __version__\nfrom . import types"),
        ("runtime/good.py", "from ..experiment.runs import lock\nfrom rl_training.models import parts"),
        ("experiment/demo.py", "from . import default_manager\nfrom rl_training.runtime import session"),
        ("experiment/__init__.py", "if TYPE_CHECKING:\n    from .default_manager import run"),
        ("__main__.py", "from rl_training.runtime.session import run"),
    ],
)
def test_a_downward_import_is_allowed(tmp_path: Path, name: str, text: str) -> None:
    plant(tmp_path, name, text)
    assert back_edges(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "caught"),
    [
        ("core/types.py", "import torch", True),
        ("envs/pixels.py", "from torch import nn", True),
        ("experiment/runs.py", "try:\n    import safetensors.torch\nexcept ImportError:\n    pass", True),
        ("core/types.py", "def f():\n    import torch", False),
        ("core/types.py", "if TYPE_CHECKING:\n    from torch import Tensor", False),
        ("experiment/checkpointing.py", "import torch", False),
        ("models/parts.py", "import torch", False),
    ],
)
def test_a_planted_torch_import_is_caught(tmp_path: Path, name: str, text: str, caught: bool) -> None:
    plant(tmp_path, name, text)
    assert bool(torch_loads(tmp_path)) == caught
