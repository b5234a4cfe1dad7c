"""Imports go down only: a folder of the package is a layer, and a module imports its own layer and those below it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
ROOT = "rl_training"

# From the bottom to the top.
LAYERS = (
    "core", "config", "tensors", "files", "checkpoint", "report", "models", "envs", "data", "engine", "algorithms",
    "loops", "run", "studies", "deploy", "api", "cli", "experiment", "runtime",
)  # fmt: skip
# Importing these must not load torch: worker processes and the command line's help start with them.
TORCH_FREE = ("core", "config", "envs.host", "envs.spaces", "envs.episode_metrics")
TOP = len(LAYERS)  # the modules of the package itself: lazy exports and __main__


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


def layer_of(module: str) -> int:
    """The number of a module's layer; modules outside a folder are on top."""
    parts = module.split(".")[1:]
    if not parts or (len(parts) == 1 and parts[0] not in LAYERS):
        return TOP
    if parts[0] not in LAYERS:
        raise LookupError(f"{module}: the folder {parts[0]} is not a layer; add it to LAYERS in this file")
    return LAYERS.index(parts[0])


def layer_name(layer: int) -> str:
    return ROOT if layer == TOP else LAYERS[layer]


def imported_layer(item: Import, modules: dict[str, Path]) -> int | None:
    """The layer that an import reaches into; None outside the package."""
    if item.module.split(".")[0] != ROOT:
        return None
    full = f"{item.module}.{item.name}"
    return layer_of(full if full in modules else item.module)


def upward_imports(source: Path) -> list[str]:
    """Every import that goes up, as `file:line: layer imports layer`."""
    modules = modules_under(source)
    problems = []
    for module, path in modules.items():
        where = path.relative_to(source).as_posix()
        try:
            layer = layer_of(module)
            for item in imports_of(module, path):
                target = imported_layer(item, modules)
                if target is not None and target > layer:
                    problems.append(f"{where}:{item.line}: {layer_name(layer)} imports {layer_name(target)}")
        except LookupError as error:
            problems.append(f"{where}: {error}")
    return problems


def is_torch_free(module: str) -> bool:
    """Whether a module is one of TORCH_FREE, inside one, or a package above one, which is imported with it."""
    name = f"{module.removeprefix(f'{ROOT}.')}."
    return any(name.startswith(f"{free}.") or f"{free}.".startswith(name) for free in TORCH_FREE)


def torch_loads(source: Path) -> list[str]:
    """Module-level imports of torch, or of modules that may load it, where it must not be loaded."""
    modules, problems = modules_under(source), []
    for module, path in modules.items():
        if module == ROOT or not is_torch_free(module):
            continue
        for item in imports_of(module, path):
            full = f"{item.module}.{item.name}"
            imported = full if full in modules else item.module
            if imported.split(".")[0] == ROOT:
                loads = not is_torch_free(imported)
            else:
                loads = item.module.split(".")[0] == "torch" or "safetensors.torch" in (item.module, full)
            if loads and not item.in_function and not item.type_checking:
                where = f"{path.relative_to(source).as_posix()}:{item.line}"
                problems.append(f"{where}: imports {imported} at module level, which may load torch")
    return problems


def test_imports_go_down_only() -> None:
    assert modules_under(SOURCE), f"no modules under {SOURCE}"
    assert upward_imports(SOURCE) == []


def test_every_folder_is_a_layer() -> None:
    folders = {path.parent.name for path in (SOURCE / ROOT).glob("*/__init__.py")}
    assert folders == set(LAYERS)


def test_low_layers_and_workers_start_without_torch() -> None:
    assert torch_loads(SOURCE) == []


def plant(source: Path, name: str, text: str) -> None:
    """A small package with one module of interest; the others are there to be imported."""
    for path, content in {"core/rng.py": "", "models/parts.py": "", "run/session.py": "", name: text}.items():
        file = source / ROOT / path
        file.parent.mkdir(parents=True, exist_ok=True)
        (file.parent / "__init__.py").touch()
        file.write_text(content, encoding="utf-8")
    (source / ROOT / "__init__.py").touch()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("core/bad.py", "import rl_training.run.session", "core imports run"),
        ("core/bad.py", "from rl_training.run import session", "core imports run"),
        ("core/bad.py", "from ..run.session import Session", "core imports run"),
        ("core/bad.py", "from .. import run", "core imports run"),
        ("core/bad.py", "def f():\n    from rl_training import run", "core imports run"),
        ("core/bad.py", "if TYPE_CHECKING:\n    from rl_training.run.session import Session", "core imports run"),
        ("core/bad.py", "import rl_training", "core imports rl_training"),
        ("core/bad.py", "from rl_training import __version__", "core imports rl_training"),
        ("models/bad.py", "from rl_training.run import session", "models imports run"),
        ("elsewhere/bad.py", "", "the folder elsewhere is not a layer"),
    ],
)
def test_a_planted_upward_import_is_caught(tmp_path: Path, name: str, text: str, problem: str) -> None:
    plant(tmp_path, name, text)
    assert any(line.startswith(f"rl_training/{name}") and problem in line for line in upward_imports(tmp_path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("core/good.py", "import os\nfrom . import rng"),
        ("run/good.py", "from ..core.rng import stream\nfrom rl_training.models import parts"),
        ("__main__.py", "from rl_training.run.session import Session"),
    ],
)
def test_a_downward_import_is_allowed(tmp_path: Path, name: str, text: str) -> None:
    plant(tmp_path, name, text)
    assert upward_imports(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "text", "caught"),
    [
        ("core/rng.py", "import torch", True),
        ("envs/host/pixels.py", "from torch import nn", True),
        ("envs/host/pixels.py", "from rl_training.models import parts", True),
        ("envs/host/pixels.py", "from rl_training.core import rng", False),
        ("envs/spaces/files.py", "import torch", True),
        ("envs/__init__.py", "import torch", True),
        ("envs/device/cartpole.py", "import torch", False),
        ("config/runs.py", "try:\n    import safetensors.torch\nexcept ImportError:\n    pass", True),
        ("core/rng.py", "def f():\n    import torch", False),
        ("core/rng.py", "if TYPE_CHECKING:\n    from torch import Tensor", False),
        ("models/parts.py", "import torch", False),
    ],
)
def test_a_planted_torch_import_is_caught(tmp_path: Path, name: str, text: str, caught: bool) -> None:
    plant(tmp_path, name, text)
    assert bool(torch_loads(tmp_path)) == caught
