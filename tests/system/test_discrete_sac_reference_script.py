from pathlib import Path

import pytest
from harness import check_reference_config, check_reference_script


def test_discrete_sac_reference_script_trains_its_config(monkeypatch: pytest.MonkeyPatch) -> None:
    check_reference_config("discrete_sac_cartpole", "discrete_sac", monkeypatch)


@pytest.mark.sweep
def test_discrete_sac_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("discrete_sac_cartpole", tmp_path)
