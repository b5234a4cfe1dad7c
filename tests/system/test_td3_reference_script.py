from pathlib import Path

from harness import check_reference_script


def test_td3_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("td3_pendulum", tmp_path)
