"""Being told to stop: saved, resumable to the same bits, with the right exit code; one process in a run directory."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from conftest import one_of_a_kind
from resume_harness import Forks, compare_runs, contents, make_config, run_dir_in, start_program, wait_for, write_config

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.checkpoint.read import newest_checkpoint

TRAIN = ["train", "--config", "config.yaml", "--quiet"]
SIGNALS = {signal.SIGTERM: 143, signal.SIGINT: 130}
ANY = algorithm_names()[0]


def started(forks: Forks, algo: str, cwd: Path, **cut: object) -> int:
    write_config(make_config(algo), cwd)
    return forks.start(TRAIN, cwd, dict(cut))


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("algo", one_of_a_kind("dqn", "iql"))
def test_a_signal_saves_and_stops(forks, whole_run, algo: str, number: int, tmp_path: Path) -> None:
    pid = started(forks, algo, tmp_path, at="slow_steps", n=52)
    wait_for(tmp_path / "mark")
    os.kill(pid, number)
    assert forks.wait(pid) == SIGNALS[number]
    run_dir = run_dir_in(tmp_path)
    step = newest_checkpoint(run_dir / "checkpoints")[0].step
    assert 52 <= step < 118
    lines = (tmp_path / "log.txt").read_text().splitlines()
    if learner_class(algo).offline:
        assert lines.pop(0).startswith("no dataset is given (dataset_path), so one was generated: 64 steps of random")
    if lines[0].startswith("batch_size (4) does not divide the 10 transitions of a rollout"):
        lines.pop(0)
    assert lines == [f"stopped by {number.name}; saved in {run_dir}"]
    assert compare_runs(whole_run(algo), forks.resume(tmp_path)) == []


@pytest.mark.parametrize(("first", "second"), [(15, 15), (2, 2), (15, 2)])
def test_a_second_signal_leaves_at_once(forks, whole_run, first: int, second: int, tmp_path: Path) -> None:
    pid = started(forks, ANY, tmp_path, at="slow_save", n=60)
    wait_for(tmp_path / "saving")  # the first of the regular saves
    os.kill(pid, first)
    time.sleep(0.5)  # two at once count as one
    began = time.monotonic()
    os.kill(pid, second)
    assert forks.wait(pid) == 128 + second
    assert time.monotonic() - began < 5
    assert compare_runs(whole_run(ANY), forks.resume(tmp_path)) == []


@pytest.mark.sweep
def test_a_terminal_signals_the_workers_too(forks, tmp_path: Path) -> None:
    """Ctrl-C reaches every process of the group; the run still saves and stops."""
    config = make_config(ANY, workers=2, total_timesteps=20_000, checkpoint_interval=5000, eval_episodes=0)
    write_config(config, tmp_path)
    process = start_program(TRAIN, tmp_path, tmp_path / "log.txt")
    try:
        wait_for(tmp_path / "runs" / f"{ANY}-{config.env_id}-seeds3-5" / "metrics.jsonl", process)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 130, (tmp_path / "log.txt").read_text()
    finally:
        process.kill()
    assert "Traceback" not in (tmp_path / "log.txt").read_text()
    assert newest_checkpoint(run_dir_in(tmp_path) / "checkpoints")[0].step > 0


def test_one_process_in_a_run_directory(forks, whole_run, tmp_path: Path) -> None:
    pid = started(forks, ANY, tmp_path, at="slow_steps", n=52)
    wait_for(tmp_path / "mark")
    other = tmp_path / "other"
    other.mkdir()
    run_dir = run_dir_in(tmp_path)
    for target in (run_dir, newest_checkpoint(run_dir / "checkpoints")[0].path):
        assert forks.run(["resume", str(target)], other) == 2
    line = f"error: {run_dir}: in use by process {pid} on {socket.gethostname()}"
    assert (other / "log.txt").read_text().splitlines() == [line, line]
    os.kill(pid, signal.SIGKILL)  # the kernel lets go of the lock
    assert forks.wait(pid) == -9
    assert compare_runs(whole_run(ANY), forks.resume(tmp_path)) == []


def test_a_run_whose_first_checkpoint_is_still_to_come_is_in_use_too(forks, tmp_path: Path) -> None:
    pid = started(forks, ANY, tmp_path, at="slow_steps", n=4)
    wait_for(tmp_path / "mark")
    assert not (run_dir_in(tmp_path) / "checkpoints").exists()
    assert forks.run(["resume", str(run_dir_in(tmp_path))], tmp_path) == 2
    assert f"in use by process {pid}" in (tmp_path / "log.txt").read_text()
    os.kill(pid, signal.SIGKILL)
    assert forks.wait(pid) == -9


@pytest.mark.sweep
@pytest.mark.parametrize("algo", one_of_a_kind("sac", "bc"))
def test_resume_of_a_finished_run_says_so_and_can_extend_it(forks, algo: str, tmp_path: Path) -> None:
    config = make_config(algo)
    extended, cut = tmp_path / "extended", tmp_path / "cut"
    for cwd in (extended, cut):
        forks.train(config, cwd)
    before = contents(run_dir_in(cut))
    forks.resume(cut)
    assert "finished at step 118; extend it with --total-timesteps" in (cut / "log.txt").read_text()
    assert contents(run_dir_in(cut)) == before
    words = ["resume", str(run_dir_in(extended)), "--quiet", "--total-timesteps", "150"]
    assert forks.run(words, extended) == 0
    assert newest_checkpoint(run_dir_in(extended) / "checkpoints")[0].step == 150
    # Killed before a checkpoint knew of the extension, it is not forgotten.
    words[1] = str(run_dir_in(cut))
    assert forks.run(words, cut, {"at": "step", "n": 121}) == -9
    assert compare_runs(run_dir_in(extended), forks.resume(cut)) == []


@pytest.mark.parametrize("algo", one_of_a_kind("tqc"))
def test_extended_by_a_resume_equals_longer_from_the_start(forks, algo: str, tmp_path: Path) -> None:
    """Where nothing is scheduled towards the end of the run."""
    wanted = {
        "learning_rate_schedule": "constant",
        "actor_schedule": "constant",
        "epsilon_start": 0.3,
        "epsilon_end": 0.3,
        "prioritized_beta_start": 1.0,
        "buffer_capacity": 1000,
    }
    changes = {"seeds": (), "num_envs": 4}  # 118 is no multiple of 4: the last step goes beyond it
    long = forks.train(make_config(algo, wanted=wanted, total_timesteps=160, **changes), tmp_path / "long")
    forks.train(make_config(algo, wanted=wanted, **changes), tmp_path / "short")
    short = run_dir_in(tmp_path / "short")
    assert forks.run(["resume", str(short), "--quiet", "--total-timesteps", "160"], tmp_path / "short") == 0
    differences = [line for line in compare_runs(long, short) if line.startswith(("learner", "envs", "replay"))]
    # The mean of the metrics since the last row is the same too: the rows fall on the same steps.
    assert differences == []
