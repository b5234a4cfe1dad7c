from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_drqv2_reference_script_trains_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reference_config("drqv2_pendulum", "drqv2", monkeypatch)


@pytest.mark.sweep
def test_drqv2_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("drqv2_pendulum", tmp_path, steps=32)
