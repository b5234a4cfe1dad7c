"""The files around a release: ranges of dependencies, their page, the container, the citation and the changelog."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

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


def dependencies_page() -> Any:
    pytest.importorskip("tomllib")  # Python 3.11
    path = ROOT / "scripts" / "dependencies_page.py"
    spec = importlib.util.spec_from_file_location("dependencies_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_dependencies_is_made_from_its_sources() -> None:
    """Every dependency has a reason and a release in them, or making the page fails."""
    assert (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8") == dependencies_page().page(), "`make docs`"


def test_the_interpreters_of_the_page_are_those_that_were_tried() -> None:
    rows = json.loads((ROOT / "benchmarks" / "results" / "install.json").read_text(encoding="utf-8"))["rows"]
    tried = {(row["python"], Path(row["file"]).suffix) for row in rows if row["works"]}
    said = re.findall(r"\b3\.\d+\.\d+\b", dependencies_page().TRIED)
    assert tried == {(version, suffix) for version in said for suffix in (".whl", ".gz")}


def test_no_dependency_is_explained_that_is_not_there() -> None:
    module = dependencies_page()
    named = {name for group in module.requirements().values() for name in group}
    assert set(module.yaml.safe_load(module.PROSE.read_text(encoding="utf-8"))) == named


def test_indirect_dependencies_are_those_of_the_extras_for_users() -> None:
    module = dependencies_page()
    facts = json.loads(module.FACTS.read_text(encoding="utf-8"))
    groups = {group: found for group, found in module.requirements().items() if group not in module.DEVELOPMENT}
    direct = {name for group in groups.values() for name in group}
    assert facts["tree"].keys().isdisjoint(direct)
    assert {name for one in facts["tree"].values() for name in one["by"]} <= direct
    core = groups[module.CORE].keys()
    assert [name for name, one in facts["tree"].items() if one["core"] and core.isdisjoint(one["by"])] == []
    assert [name for name, one in facts["tree"].items() if not one["licence"]] == []


def test_the_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == rl_training.__version__ and citation["license"] == "MIT"
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_the_container_is_made_by_the_script_from_files_that_are_there() -> None:
    lines = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    steps = [line.partition(" ")[2] for line in lines if line.startswith("RUN ")]
    assert steps[0].endswith('/source/scripts/container_setup.sh /opt/rl-training "$EXTRAS"')
    assert not any("pip" in step for step in steps)  # installing is the script's
    copied = [words.split()[:-1] for line in lines for words in [line.removeprefix("COPY ")] if words != line]
    sources = [source for words in copied for source in words if not words[0].startswith("--from")]
    assert "scripts/container_setup.sh" in sources and [name for name in sources if not (ROOT / name).exists()] == []
    allowed = (ROOT / ".containerignore").read_text(encoding="utf-8").splitlines()
    assert {f"!{name}" for name in sources} <= set(allowed)
