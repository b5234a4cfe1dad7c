"""Functions stay small: at most 60 lines and, but for public constructors, at most 8 parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "rl_training"
MAX_LINES, MAX_PARAMETERS = 60, 8


def functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """Every function, and whether it is the constructor of a public class."""
    public = {
        id(method)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for method in node.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node, id(node) in public


def parameters(function: ast.FunctionDef) -> int:
    arguments = function.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def too_large(source: Path) -> list[str]:
    found = []
    for path in sorted(source.rglob("*.py")):
        for function, is_constructor in functions(ast.parse(path.read_text(encoding="utf-8"))):
            lines, count = (function.end_lineno or 0) - function.lineno + 1, parameters(function)
            where = f"{path.relative_to(source)}:{function.lineno} {function.name}"
            if lines > MAX_LINES:
                found.append(f"{where}: {lines} lines")
            if count > MAX_PARAMETERS and not is_constructor:
                found.append(f"{where}: {count} parameters")
    return found


def test_functions_are_small() -> None:
    assert too_large(SOURCE) == []


def test_a_planted_function_is_caught(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("def f():\n" + "    pass\n" * MAX_LINES)
    (tmp_path / "wide.py").write_text(f"def g(self, {', '.join(f'p{n}' for n in range(9))}): ...\n")
    wide = ", ".join(f"p{n}" for n in range(12))
    (tmp_path / "fine.py").write_text(f"class C:\n    def __init__(self, {wide}): ...\n")
    assert too_large(tmp_path) == ["long.py:1 f: 61 lines", "wide.py:1 g: 9 parameters"]
