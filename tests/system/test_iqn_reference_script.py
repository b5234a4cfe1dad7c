from pathlib import Path

from harness import check_reference_script


def test_iqn_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("iqn_cartpole", tmp_path)
