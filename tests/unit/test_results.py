"""What the results page says is what the result files say, and each of them says how it was made."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = sorted((BENCHMARKS / "results").glob("*.json"))
# Programs whose result files are kept.
WRITERS = (
    *("learn", "bench_cpu", "bench_gpu", "memory", "checkpoint_cost", "checkpoint_overhead", "pixel_speed"),
    *("priority_cost", "peer_scores", "goals", "dict_cost", "../scripts/kill_campaign", "../scripts/fuzz"),
)


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def test_the_table_of_results_is_made_from_the_files(benchmark_module: Any) -> None:
    folder = BENCHMARKS / "results"
    table = benchmark_module("learn").table(folder)
    assert (folder / "README.md").read_text() == table, "run benchmarks/learn.py, or write table() anew"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_result_names_its_commit_versions_and_command(path: Path) -> None:
    made = json.loads(path.read_text())["provenance"]
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", made["commit"])
    if not made.get("inferred"):
        assert {"python", "torch", "processor"} <= set(made["versions"])
        assert re.match(r"python (benchmarks|scripts)/\w+\.py", made["command"])


def test_every_program_of_results_writes_its_provenance(
    benchmark_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "memory.py"), "--peer-python", "/far/away/bin/python", "--x=1"])
    provenance = benchmark_module("provenance")
    provenance.write_result(tmp_path / "a.json", {"figure": 3}, sys.executable, trained_commit="abc")
    result = json.loads((tmp_path / "a.json").read_text())
    made = result["provenance"]
    assert result["figure"] == 3 and made["trained_commit"] == "abc" and made["commit"] == provenance.COMMIT
    assert made["command"] == "python benchmarks/memory.py --peer-python python --x=1"  # no paths of this machine
    assert made["versions"]["torch"] and made["peer_versions"]["torch"]
    for name in WRITERS:
        text = (BENCHMARKS / f"{name}.py").read_text()
        assert "write_result(" in text and ".json.write" not in text and "output.write_text" not in text, name


@pytest.mark.parametrize("algo", ["qr_dqn", "rainbow_dqn", "sac", "iql"])
def test_gpu_benchmark_runs_dry_on_a_cpu(
    benchmark_module: Any, algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Discrete and continuous actions, priorities, a dataset."""
    words = ["--device", "cpu", "--only-eager", "--seeds", "1", "--updates", "1", "--output", str(tmp_path / "a.json")]
    words += ["--set", "batch_size=4", "hidden_sizes=[8]"]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "bench_gpu.py"), "--algo", algo, *words])
    benchmark_module("bench_gpu").main()
    (row,) = json.loads((tmp_path / "a.json").read_text())["rows"]
    assert row == json.loads(capsys.readouterr().out) and row["algo"] == algo
    assert row["updates_per_s"] > 0 and not row["compiled"]
