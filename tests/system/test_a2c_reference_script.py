from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_a2c_reference_script_trains_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reference_config("a2c_cartpole", "a2c", monkeypatch)


@pytest.mark.sweep
def test_a2c_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("a2c_cartpole", tmp_path)
