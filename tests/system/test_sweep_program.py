"""`rl-training sweep` as a program: signals, and kills of the sweep, its runs and everything."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from resume_harness import compare_runs
from study_programs import runs_of, start, wait_until

from rl_training.studies.folder import StudyFolder
from rl_training.studies.process import in_use

SLOW: dict[str, Any] = {
    "name": "study",
    "algorithms": ["dqn"],
    "environments": ["CartPole-v1"],
    "config": {"total_timesteps": 100_000, "report": False, "tags": ["slow"]},
    "overrides": [{"grid": {"gamma": [0.9, 0.95, 0.99]}}],
}
REAL: dict[str, Any] = {
    **SLOW,
    "seeds": [0, 1],
    "config": {
        "total_timesteps": 1500, "checkpoint_interval": 100, "log_interval": 100, "eval_episodes": 1,
        "learning_starts": 100, "video": False, "report": False,
    },
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_stops_every_run_saved(number: int, code: int, tmp_path: Path) -> None:
    sweep = start(SLOW, tmp_path, "--jobs", "2", stand_in=True)
    folder = StudyFolder(tmp_path / "studies" / "study")
    saved = folder.path / "runs"
    try:
        wait_until(lambda: len(list(saved.glob("*/checkpoints/step_*"))) > 4 or sweep.poll() is not None)
        os.kill(sweep.pid, number)
        assert sweep.wait(60) == code, (tmp_path / "log.txt").read_text()
    finally:
        sweep.kill()
    log = (tmp_path / "log.txt").read_text()
    assert f"stopped by {signal.Signals(number).name}; every run is saved, the same command continues" in log
    assert "Traceback" not in log
    begun = [name for name, _ in folder.planned() if folder.state(name).status == "stopped"]
    assert len(begun) == 2 and all(folder.state(name).step > 0 for name in begun)
    assert not any(in_use(folder, name) for name, _ in folder.planned())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the children of a process that dies")
def test_a_killed_sweep_leaves_no_run_behind(tmp_path: Path) -> None:
    sweep = start(SLOW, tmp_path, "--jobs", "2", stand_in=True)
    folder = StudyFolder(tmp_path / "studies" / "study")
    wait_until(lambda: len(list((folder.path / "runs").glob("*/checkpoints/step_*"))) > 4)
    sweep.kill()
    sweep.wait()
    wait_until(lambda: not any(in_use(folder, name) for name, _ in folder.planned()), 20)
    assert {folder.state(name).status for name, _ in folder.planned()} == {"stopped", "new"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the undisturbed study moved aside to `whole`: configs hold the path that the others use again."""
    base = tmp_path_factory.mktemp("kills")
    assert start(REAL, base, "--jobs", "2").wait(300) == 0, (base / "log.txt").read_text()
    shutil.move(base / "studies" / "study", base / "whole")
    return base


def check_equal(base: Path) -> None:
    folder = StudyFolder(base / "studies" / "study")
    for name, _ in folder.planned():
        assert compare_runs(base / "whole" / "runs" / name, folder.run_dir(name)) == []
    shutil.rmtree(folder.path)


@pytest.mark.sweep
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes in /proc")
def test_kills_of_the_sweep_its_runs_and_everything_change_nothing(undisturbed: Path) -> None:
    folder, rng = StudyFolder(undisturbed / "studies" / "study"), random.Random(0)
    for kill in ("run", "sweep", "everything", "run", "sweep"):
        before = len(list((folder.path / "runs").glob("*/checkpoints/*")))
        sweep = start(REAL, undisturbed, "--jobs", "2")
        wait_until(
            lambda sweep=sweep, before=before: (  # type: ignore[misc]
                len(list((folder.path / "runs").glob("*/checkpoints/*"))) > before or sweep.poll() is not None
            )
        )
        time.sleep(rng.uniform(0, 1))
        victims = runs_of(folder.path)
        if kill != "sweep":
            for pid in victims if kill == "everything" else victims[:1]:
                os.kill(pid, signal.SIGKILL)
        if kill != "run":
            sweep.kill()
        else:
            time.sleep(1)
            sweep.terminate()
        sweep.wait(120)
    assert start(REAL, undisturbed, "--jobs", "2").wait(300) == 0, (undisturbed / "log.txt").read_text()
    check_equal(undisturbed)


@pytest.mark.sweep
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes in /proc")
def test_a_run_whose_ray_worker_dies_is_resumed(undisturbed: Path) -> None:
    pytest.importorskip("ray")
    folder = StudyFolder(undisturbed / "studies" / "study")
    sweep = start(REAL, undisturbed, "--jobs", "2", "--launch", "ray", "--address", "local")
    wait_until(lambda: list(folder.path.glob("runs/*/checkpoints/*")) or sweep.poll() is not None, 300)
    run = runs_of(folder.path)[0]
    worker = int(Path(f"/proc/{run}/stat").read_text().rpartition(")")[2].split()[1])
    assert Path(f"/proc/{worker}/cmdline").read_text().startswith("ray::run_planned")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: run not in runs_of(folder.path), 20)  # a run does not outlive its worker
    assert sweep.wait(300) == 0, (undisturbed / "log.txt").read_text()
    logs = [path.read_text() for path in folder.path.glob("logs/*.txt")]
    assert not any("Traceback" in log for log in logs)
    check_equal(undisturbed)
