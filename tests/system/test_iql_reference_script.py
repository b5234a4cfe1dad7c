from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_iql_reference_script_trains_its_config(monkeypatch) -> None:
    check_reference_config("iql_pendulum", "iql", monkeypatch)


@pytest.mark.sweep
def test_iql_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("iql_pendulum", tmp_path)
