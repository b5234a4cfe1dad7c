from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_c51_dqn_reference_script_trains_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reference_config("c51_dqn_cartpole", "c51_dqn", monkeypatch)


@pytest.mark.sweep
def test_c51_dqn_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("c51_dqn_cartpole", tmp_path)
