"""What the results page says is what the result files say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def test_the_table_of_results_is_made_from_the_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import learn

    folder = BENCHMARKS / "results"
    assert (folder / "README.md").read_text() == learn.table(folder), "run benchmarks/learn.py, or write table() anew"
