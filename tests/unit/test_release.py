"""The files around a release: ranges of dependencies, their page, the container, the citation and the changelog."""

from __future__ import annotations

import re
from pathlib import Path

import rl_training

ROOT = Path(__file__).resolve().parents[2]
UPPER = re.compile(r'"[^"]*[^<](<=?|==|~=)\s*\d[^"]*"')


def dependency_lines() -> list[str]:
    """The lines of pyproject.toml that name dependencies."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return text.partition("dependencies = [")[2].partition("[project.scripts]")[0].splitlines()


def test_an_upper_bound_of_a_dependency_has_its_reason() -> None:
    bounded = [line for line in dependency_lines() if UPPER.search(line.replace("python_version <", ""))]
    assert bounded and [line for line in bounded if "#" not in line] == []


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", text, re.MULTILINE)[0] == rl_training.__version__
