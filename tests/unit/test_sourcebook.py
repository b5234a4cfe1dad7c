"""docs/sourcebook.md says what the registry says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
ENTRY = {"name": "M", "area": "a", "paper": "P", "authors": "A", "adds": "Adds.", "venue": "V 2020"}


@pytest.fixture(scope="module")
def book() -> Any:
    spec = importlib.util.spec_from_file_location("sourcebook", ROOT / "scripts" / "sourcebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules["sourcebook"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_committed_file_is_what_the_registry_gives(book) -> None:
    assert (ROOT / "docs" / "sourcebook.md").read_text() == book.sourcebook(book.read_methods()), "run `make docs`"


def test_only_what_is_registered_and_takes_the_settings_counts(book) -> None:
    def made(**more: Any) -> Any:
        return book.Method(**ENTRY, **more)

    assert book.here_cell(made()) == "not yet"
    assert book.here_cell(made(here={"no_such_algorithm": {}})) == "not yet"
    assert book.here_cell(made(here={"dqn": {"double": True}})) == "**full**: `dqn`, `double: true`"
    assert book.here_cell(made(here={"sac": {}}, lacks="a thing")) == "**narrow**: `sac`; lacks a thing"
    with pytest.raises(TypeError, match="trouble"):
        book.here_cell(made(here={"dqn": {"trouble": True}}))
    with pytest.raises(ValueError, match="gamma must be"):
        book.here_cell(made(here={"dqn": {"gamma": 2.0}}))


def test_an_algorithm_without_a_method_is_noticed(book) -> None:
    sections = {year: [m for m in section if "sac" not in m.here] for year, section in book.read_methods().items()}
    with pytest.raises(ValueError, match="no method for the registered algorithm 'sac'"):
        book.sourcebook(sections)


def test_every_method_has_a_source_of_its_year_and_one_sentence(book) -> None:
    names, preprints = [], []
    for year, section in book.read_methods().items():
        for method in section:
            names.append(method.name)
            assert method.arxiv or method.venue, method.name
            assert method.adds.endswith(".") and method.adds.count(". ") == 0 and len(method.adds) < 150, method.name
            assert "|" not in f"{method.paper}{method.adds}{method.authors}", method.name
            if method.arxiv:
                preprints.append(method.arxiv)
                assert re.fullmatch(r"\d\d(0[1-9]|1[0-2])\.(\d{4}|\d{5})", method.arxiv), method.name
                written = 2000 + int(method.arxiv[:2])
                assert year == "before 2013" or written == int(year) or method.name == "CrossQ", method.name
    assert len(set(names)) == len(names) and len(set(preprints)) == len(preprints)
