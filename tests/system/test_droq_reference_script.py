from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_droq_reference_script_trains_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reference_config("droq_pendulum", "droq", monkeypatch)


@pytest.mark.sweep
def test_droq_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("droq_pendulum", tmp_path)
