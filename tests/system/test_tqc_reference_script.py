from pathlib import Path

from harness import check_reference_script


def test_tqc_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("tqc_pendulum", tmp_path)
