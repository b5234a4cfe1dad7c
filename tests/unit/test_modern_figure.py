"""The table and figure of the modern methods say what the result files say, and what was not run."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def figure(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("modern_figure")


def test_the_page_and_the_figure_are_made_from_the_files(figure: Any) -> None:
    folder, page = ROOT / "benchmarks" / "results", (ROOT / "docs" / "results.md").read_text()
    results = figure.read_results(folder)
    assert figure.written_page(page, results) == page, "run benchmarks/modern_figure.py"
    assert (folder / figure.FIGURE).read_text() == figure.figure(results), "run benchmarks/modern_figure.py"


def test_a_result_is_in_the_table_and_in_the_figure(figure: Any, tmp_path: Path) -> None:
    """Four seeds after 20 and 40 seconds; the means of the middle ones are 150 and 200."""
    rows = [{"step": s, "seed": k, "mean": s * (k + 1) / 1000 + 100, "seconds": s / 1000}
            for s in (20_000, 40_000) for k in range(4)]  # fmt: skip
    summary = {"iqm": 450.4, "interval": [400.0, 500.0], "n": 8}
    name = "crossq-humanoid-200k"
    result = {"name": name, "curve": rows, "summary": {"final": summary}, "train_seconds": 1234.5}
    (tmp_path / f"{name}.json").write_text(json.dumps(result))
    results = figure.read_results(tmp_path)
    line = next(line for line in figure.section(results).splitlines() if line.startswith("| CrossQ"))
    ours = f"[450](../benchmarks/results/{name}.json) [400, 500], 8 seeds"
    assert line == f"| CrossQ | not run | 8,153 | – | {ours} | 6,599 | 1,234 s |"
    missing = figure.section(results).splitlines()[-1]
    assert "crossq-halfcheetah-100k" in missing and name not in missing
    steps, seconds = (figure.curve(results["crossq", "humanoid"], by_seconds) for by_seconds in (False, True))
    assert [(one.x, one.y) for one in steps] == [(20_000, 150), (40_000, 200)]
    assert [one.x for one in seconds] == [20, 40]
    drawn = figure.figure(results)
    ElementTree.fromstring(drawn)  # it is well-formed
    assert drawn.count("CrossQ: 200") == 2 and drawn.count("CrossQ, published: 6,599") == 1  # by steps and by seconds


def test_published_values_are_points_of_the_curves(figure: Any) -> None:
    assert figure.published_points("flashsac", "humanoid") == {100_000: 6138.0, 200_000: 9640.0}
    assert figure.published_points("redq", "halfcheetah") == {100_000: 7823.0}
    assert "redq" not in figure.methods_of("humanoid") and "droq" not in figure.methods_of("humanoid")


def test_a_page_without_the_comments_is_one_line(figure: Any) -> None:
    with pytest.raises(SystemExit, match="the page must have the lines"):
        figure.written_page("# Results\n", {})
