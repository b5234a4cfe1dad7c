from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_td3_bc_reference_script_trains_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reference_config("td3_bc_pendulum", "td3_bc", monkeypatch)


@pytest.mark.sweep
def test_td3_bc_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("td3_bc_pendulum", tmp_path)
