from pathlib import Path

from harness import check_reference_config, check_reference_script


def test_dqn_reference_script_trains_its_config(monkeypatch) -> None:
    check_reference_config("dqn_cartpole", "dqn", monkeypatch)


def test_dqn_reference_script_runs(tmp_path: Path) -> None:
    check_reference_script("dqn_cartpole", tmp_path)
