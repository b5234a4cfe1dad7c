from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_crossq_reference_script_trains_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reference_config("crossq_pendulum", "crossq", monkeypatch)


@pytest.mark.sweep
def test_crossq_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("crossq_pendulum", tmp_path)
