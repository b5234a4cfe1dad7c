from pathlib import Path

from harness import check_reference_script


def test_drq_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("drq_pendulum", tmp_path, steps=40)
