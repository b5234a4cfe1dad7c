"""What depends on the kind of an array is decided in `envs`, `models` and `core/specs`; settings are not probed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src" / "rl_training"
DECIDE_BY_KIND = ("envs/", "models/", "core/specs.py")
KINDS = re.compile(r"(^|_)(discrete|continuous|images?|pixels?)($|_)")


def conditions(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.If, ast.IfExp, ast.While, ast.Assert)):
            yield node.test
        elif isinstance(node, ast.comprehension):
            yield from node.ifs
        elif isinstance(node, ast.match_case) and node.guard is not None:
            yield node.guard


def words(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def kind_branches(source: Path) -> list[str]:
    """Conditions outside the layers that may decide by the kind of an array."""
    found = []
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if name.startswith(DECIDE_BY_KIND):
            continue
        for test in conditions(ast.parse(path.read_text(encoding="utf-8"))):
            if any(KINDS.search(word) for word in words(test)):
                found.append(f"{name}:{test.lineno}: {ast.unparse(test)}")
    return found


def probed_settings(source: Path) -> list[str]:
    """`getattr(settings, …)` and `hasattr(settings, …)`, whose answer decides what a learner is."""
    found = []
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id
            if called in ("getattr", "hasattr") and ast.unparse(node.args[0]).rpartition(".")[2] == "settings":
                literal = len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
                if literal:
                    found.append(f"{path.relative_to(source)}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_only_envs_models_and_specs_decide_by_the_kind_of_an_array() -> None:
    assert kind_branches(SOURCE) == []


def test_settings_are_not_probed() -> None:
    assert probed_settings(SOURCE) == []


def test_planted_branches_are_caught(tmp_path: Path) -> None:
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "fine.py").write_text("a = 1 if spec.is_image else 2\n")
    probe = "    steps = getattr(self.settings, 'n_step', 1)"
    (tmp_path / "bad.py").write_text(f"if spec.action.kind == 'discrete':\n{probe}\n")
    assert kind_branches(tmp_path) == ["bad.py:1: spec.action.kind == 'discrete'"]
    assert probed_settings(tmp_path) == ["bad.py:2: getattr(self.settings, 'n_step', 1)"]
