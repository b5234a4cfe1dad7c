from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_pqn_reference_script_trains_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reference_config("pqn_cartpole", "pqn", monkeypatch)


@pytest.mark.sweep
def test_pqn_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("pqn_cartpole", tmp_path)
