from pathlib import Path

from harness import check_reference_script


def test_rainbow_dqn_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("rainbow_dqn_cartpole", tmp_path)
