"""`rl-training tune` as a program: killed with everything it started, the same command ends with the same study."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from resume_harness import compare_runs
from study_programs import runs_of, start, wait_until

from rl_training.studies.folder import StudyFolder
from rl_training.studies.trials import Trials
from rl_training.studies.tune_file import load_tune

STUDY: dict[str, Any] = {
    "name": "tuned",
    "algo": "dqn",
    "env_id": "CartPole-v1",
    "trials": 6,
    "seeds": [0, 1],
    "search": {"gamma": {"low": 0.5, "high": 0.999}, "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}},
    "startup_trials": 2,
    "pruning": {"startup_trials": 2},
    "config": {
        "total_timesteps": 1500, "eval_interval": 500, "checkpoint_interval": 100, "log_interval": 100,
        "eval_episodes": 2, "learning_starts": 100, "train_frequency": 4, "gradient_updates_per_step": 1,
        "video": False, "report": False,
    },
}  # fmt: skip


def result(base: Path, place: Path) -> list[Any]:
    """What the journal of a study has: settings, rungs, state and value of every trial."""
    study, _ = load_tune(base / "study.yaml")
    return [
        (one.number, one.params, one.intermediate_values, one.state.name, one.value)
        for one in Trials(study, place, 500).all()
    ]


@pytest.mark.sweep
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes in /proc")
def test_kills_of_a_tuning_study_change_nothing(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    folder, rng = StudyFolder(tmp_path / "studies" / "tuned"), random.Random(0)
    assert start(STUDY, tmp_path, "--jobs", "1", verb="tune").wait(600) == 0, (tmp_path / "log.txt").read_text()
    whole = Path(shutil.move(folder.path, tmp_path / "whole"))

    cut: dict[str, int] = {}  # trials in flight with the step of their newest checkpoint
    for _ in range(4):
        before = len(list(folder.path.glob("runs/*/checkpoints/*")))
        tune = start(STUDY, tmp_path, "--jobs", "1", verb="tune")
        wait_until(
            lambda tune=tune, before=before: (  # type: ignore[misc]
                len(list(folder.path.glob("runs/*/checkpoints/*"))) > before or tune.poll() is not None
            )
        )
        time.sleep(rng.uniform(0, 2))
        assert tune.poll() is None, "it ended before it was killed"
        tune.kill()
        for pid in runs_of(folder.path):
            os.kill(pid, signal.SIGKILL)
        tune.wait(60)
        wait_until(lambda: not runs_of(folder.path))
        begun = {path.name for path in (folder.path / "runs").iterdir() if not folder.state(path.name).ended}
        cut |= {name: folder.newest_step(name) for name in begun}
    assert start(STUDY, tmp_path, "--jobs", "1", verb="tune").wait(600) == 0, (tmp_path / "log.txt").read_text()

    expected = result(tmp_path, whole)
    assert result(tmp_path, folder.path) == expected
    states = {f"trial-{number:04d}": state for number, _, _, state, _ in expected}
    complete = [name for name, state in states.items() if state == "COMPLETE"]
    assert any(cut.get(name, 0) > 0 for name in complete), f"no trial in flight was resumed to its end: {cut} {states}"
    for name in complete:  # how far a pruned one came before it was stopped is a matter of time
        assert compare_runs(whole / "runs" / name, folder.run_dir(name)) == []
    assert "Traceback" not in (tmp_path / "log.txt").read_text()
