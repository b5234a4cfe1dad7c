from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_drq_reference_script_trains_its_config(monkeypatch) -> None:
    check_reference_config("drq_pendulum", "drq", monkeypatch)


@pytest.mark.sweep
def test_drq_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("drq_pendulum", tmp_path, steps=16)
