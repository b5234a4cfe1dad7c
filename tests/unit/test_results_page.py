"""The page of the results: values read from references, what was not reached, and every result on it."""

from __future__ import annotations

import importlib
import json
import sys
from html import escape
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that makes the page."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("results_page")


def entry(made: Any, reference: str, env_id: str = "Hopper-v5") -> Any:
    return made.Entry({"name": "x", "reference": reference, "config": {"algo": "a", "env_id": env_id}}, None, None)


@pytest.mark.parametrize(
    ("reference", "published", "data"),
    [
        ("-157 +- 89 (RL Zoo, 20k steps)", -157.0, None),
        ("4,601 (RL Zoo) to 4,926 (Dopamine) at 100k steps", 4601.0, None),
        ("D4RL score 50.0 (CORL, 1M updates)", (3234.3 - 20.272305) / 2, None),
        ("D4RL score none (CORL, 1M updates)", None, None),
        ("none published (SAC: -157, RL Zoo)", None, None),
        ("the data: -180.5", None, -180.5),
        ("50: an invalid action ends the episode", None, None),
        ("what the same without masks must not reach", None, None),
    ],
)
def test_values_of_references(made: Any, reference: str, published: float | None, data: float | None) -> None:
    assert entry(made, reference).published == (None if published is None else pytest.approx(published))
    assert entry(made, reference).data_return == data


def test_texts(made: Any) -> None:
    many: dict[str, Any] = {"iqm": 5.5, "interval": (4.0, 7.25), "n": 8}
    assert made.interval(many) == "5.500 [4, 7.250]" and made.interval({**many, "n": 3}) == "5.500 (mean of 3)"
    assert (made.difference(3.0, 1.0), made.difference(1.0, 3.0), made.difference(1.0, None)) == ("+2", "−2", "–")


def test_every_result_is_on_the_page_and_what_was_not_reached_comes_first(made: Any) -> None:
    page = made.results_page(RESULTS)
    entries, others = made.read_entries(RESULTS)
    assert len(entries) + len(others) == len([path for path in RESULTS.glob("*.json") if "peer-" not in path.name])
    missed = [one.name for one in entries if one.reached is False]
    assert f"<b>Not reached: {len(missed)}.</b>" in page and page.count(">not reached</span>") == 2 * len(missed)
    top = page[: page.index('class="filters"')]
    assert missed and all(f'href="#{name}"' in top for name in missed)
    for one in entries:
        assert f'id="{one.name}"' in page and escape(one.result["reference"]) in page and one.commit in page
    for name, _ in others:
        assert f'<th scope="row">{name}</th>' in page


def test_hostile_results_are_escaped(made: Any, tmp_path: Path) -> None:
    result = json.loads((RESULTS / "sac-pendulum.json").read_text())
    evil = "<img src=x>"
    result |= {"name": evil, "reference": evil, "note": evil}
    result["config"] |= {"algo": evil, "env_id": evil}
    result["provenance"] = {"commit": evil, "command": evil}
    (tmp_path / "x.json").write_text(json.dumps(result))
    (tmp_path / f"{'y' * 5}.json").write_text(json.dumps({"what": evil, "reached": evil, "provenance": {}}))
    page = made.results_page(tmp_path)
    assert "<img" not in page and escape(evil) in page
