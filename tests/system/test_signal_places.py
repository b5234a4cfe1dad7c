"""SIGINT and SIGTERM wherever the program is: reported within two seconds, ended within five, nothing half-written."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compiler import needs_compiler
from conftest import make_quick_config
from endless_envs import ENDLESS
from resume_harness import Forks, compare_runs, make_config, read_json, run_dir_in, wait_for, write_config

from rl_training.checkpoint.read import list_checkpoints

TRAIN = ["train", "--config", "config.yaml", "--quiet"]
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
ACKNOWLEDGED, ENDED = 2.0, 5.0  # seconds


@pytest.fixture(scope="module")
def made(forks: Forks, tmp_path_factory) -> dict[str, str]:
    """A finished run and a dataset, for the commands."""
    folder = tmp_path_factory.mktemp("made")
    run_dir = forks.train(make_quick_config("dqn", Path("runs"), total_timesteps=30, eval_episodes=0), folder)
    words = ["data", "record", "data.npz", "--env", "Pendulum-v1", "--size", "100", "--quiet"]
    assert forks.run(words, folder) == 0
    return {"RUN": str(run_dir), "DATA": str(folder / "data.npz")}


def stop(
    forks: Forks, pid: int, cwd: Path, number: signal.Signals, kill: Callable[[int, int], None] = os.kill
) -> list[str]:
    """Signal a process that has left its mark; what it printed from then on."""
    log = cwd / "log.txt"
    wait_for(cwd / "mark")
    before = log.stat().st_size
    time.sleep(0.05)  # into the call
    began = time.monotonic()
    kill(pid, number)
    while log.stat().st_size == before and time.monotonic() < began + 20:
        time.sleep(0.01)
    acknowledged = time.monotonic() - began
    assert forks.wait(pid) == CODES[number], log.read_text()
    ended = time.monotonic() - began
    assert acknowledged < ACKNOWLEDGED and ended < ENDED, (acknowledged, ended)
    lines = log.read_text()[before:].splitlines()
    assert "Traceback" not in log.read_text() and len(lines) <= 2, lines
    if len(lines) == 2:
        assert lines[0] == f"{number.name}: stopping; a second signal ends the program at once, without saving"
    assert lines[-1].startswith(f"stopped by {number.name}")
    return lines


EVALUATING = "rl_training.run.evaluate:_run_batch"
FILMING = "rl_training.run.artifacts:_render"
RECORDING = "rl_training.data.datasets.generate:_row"
LOADING = "rl_training.data.datasets.formats.npz:NpzReader.read"
WRITING = "rl_training.data.datasets.formats.writing:write_npz"
COMMANDS = {
    "evaluate": (["evaluate", "RUN"], EVALUATING),
    "record": (["record", "RUN", "--output", "out.webm"], FILMING),
    "data record": (["data", "record", "out.npz", "--env", "Pendulum-v1", "--quiet"], RECORDING),
    "data record, writing": (["data", "record", "out.npz", "--env", "Pendulum-v1", "--size", "9", "--quiet"], WRITING),
    "data convert": (["data", "convert", "DATA", "out.npz"], LOADING),
    "data show": (["data", "show", "DATA"], LOADING),
}


@pytest.mark.parametrize("in_c", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["python", "c"])
@pytest.mark.parametrize("command", COMMANDS)
def test_signal_in_a_command(command: str, in_c: bool, forks: Forks, made: dict[str, str], tmp_path: Path) -> None:
    words, function = COMMANDS[command]
    number = signal.SIGTERM if len(command) % 2 else signal.SIGINT
    pid = forks.start(
        [made.get(word, word) for word in words], tmp_path, {"at": "slow_call", "function": function, "in_c": in_c}
    )
    stop(forks, pid, tmp_path, number)
    if not in_c:  # what a program leaves that had to be ended is a hidden file
        assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", "mark"]


# Before there is anything to save: whether a run directory is there already, and where the time goes.
SET_UP = {
    "conformance": (False, "dqn", "rl_training.envs.make:check_environment"),
    "loading data": (False, "iql", LOADING),
    "recording data": (False, "bc", RECORDING),
    "building environments": (True, "dqn", "rl_training.envs.make:SeededEnvs"),
    "making the replay": (True, "sac", "rl_training.run.run:make_replay"),
    "resetting": (True, "td3", "rl_training.envs.host.vector:SeededEnvs.reset_all"),
}


@pytest.mark.parametrize("place", SET_UP)
def test_signal_during_set_up(place: str, forks: Forks, made: dict[str, str], tmp_path: Path) -> None:
    has_run, algo, function = SET_UP[place]
    data = {"dataset_kind": "file", "dataset_path": made["DATA"]} if place == "loading data" else {}
    config = make_quick_config(algo, Path("runs"), data, eval_episodes=0)
    write_config(config, tmp_path)
    pid = forks.start(TRAIN, tmp_path, {"at": "slow_call", "function": function})
    lines = stop(forks, pid, tmp_path, signal.SIGINT)
    if not has_run:
        assert lines[-1] == "stopped by SIGINT" and not list(tmp_path.glob("runs/*"))
        return
    run_dir = run_dir_in(tmp_path)
    assert lines[-1] == f"stopped by SIGINT before the first checkpoint; resume starts {run_dir} again"
    assert read_json(run_dir / "run.json")["status"] == "stopped"
    forks.resume(tmp_path)
    assert read_json(run_dir / "run.json")["status"] == "finished"


@pytest.mark.sweep
@pytest.mark.parametrize(("at", "number"), [(37, signal.SIGTERM), (118, signal.SIGINT)], ids=["mid-run", "the last"])
def test_a_signal_in_an_evaluation_repeats_it_on_resume(
    at: int, number: signal.Signals, forks, whole_run, tmp_path: Path
) -> None:
    config = make_config("dqn")
    whole = whole_run("dqn")
    write_config(config, tmp_path)
    skip = {37: 0, 118: 3}[at]  # evaluations at steps 37, 74 and 111 before that
    for repeated in range(2):  # the second time, in what the resume repeats
        (tmp_path / "mark").unlink(missing_ok=True)
        words = ["resume", str(run_dir_in(tmp_path)), "--quiet"] if repeated else TRAIN
        cut = {"at": "slow_call", "function": EVALUATING, "skip": 0 if repeated else skip}
        lines = stop(forks, forks.start(words, tmp_path, cut), tmp_path, number)
        run_dir = run_dir_in(tmp_path)
        assert lines[-1] == f"stopped by {number.name}; saved in {run_dir}"
        assert read_json(run_dir / "run.json")["status"] == "stopped"
        newest = list_checkpoints(run_dir / "checkpoints")[-1]
        state = read_json(newest / "state.json")
        assert (state["step"], state["parts"]["session"]["evaluation_due"]) == (at if at == 118 else 38, True)
    assert compare_runs(whole, forks.resume(tmp_path)) == []
    rows = [json.loads(line) for line in (run_dir / "evaluations.jsonl").read_text().splitlines()]
    assert len({(row["step"], row["seed"]) for row in rows}) == len(rows) == 8


@pytest.mark.sweep
@pytest.mark.parametrize("in_c", [False, True], ids=["python", "c"])
def test_a_signal_ends_an_evaluation_without_an_end(in_c: bool, forks: Forks, tmp_path: Path) -> None:
    """In C, the run has to be ended from outside: what was saved before stands."""
    config = make_quick_config("dqn", Path("runs"), env_id=ENDLESS, eval_episode_limit=10**9, eval_interval=60)
    write_config(config, tmp_path)
    cut = {"at": "slow_call", "function": EVALUATING, "in_c": True} if in_c else {"at": "mark_evaluation"}
    lines = stop(forks, forks.start(TRAIN, tmp_path, cut), tmp_path, signal.SIGTERM)
    run_dir = run_dir_in(tmp_path)
    assert read_json(run_dir / "run.json")["status"] == "stopped"
    steps = [path.name for path in list_checkpoints(run_dir / "checkpoints")]
    assert steps == (["step_000000000050"] if in_c else ["step_000000000050", "step_000000000060"])
    if not in_c:
        assert lines[-1] == f"stopped by SIGTERM; saved in {run_dir}"


def test_a_signal_while_filming_leaves_a_finished_run(forks: Forks, tmp_path: Path) -> None:
    config = dataclasses.replace(make_quick_config("dqn", Path("runs"), eval_episodes=0), video=True, report=True)
    write_config(config, tmp_path)
    pid = forks.start(TRAIN, tmp_path, {"at": "slow_call", "function": FILMING})
    lines = stop(forks, pid, tmp_path, signal.SIGINT)
    run_dir = run_dir_in(tmp_path)
    assert lines[-1] == f"stopped by SIGINT; the run is finished in {run_dir}, its video and report are missing"
    assert read_json(run_dir / "run.json")["status"] == "finished"
    assert not [path.name for path in run_dir.iterdir() if "video" in path.name]
    forks.resume(tmp_path)


def test_an_ignored_sigint_stays_ignored_and_sigterm_works(forks: Forks, tmp_path: Path) -> None:
    """As under nohup, or as a background job of a shell."""
    write_config(make_config("dqn"), tmp_path)
    pid = forks.start(TRAIN, tmp_path, {"at": "slow_steps", "n": 52}, ignores_sigint=True)
    wait_for(tmp_path / "mark")
    os.kill(pid, signal.SIGINT)
    time.sleep(0.7)
    assert (tmp_path / "log.txt").read_text() == ""
    lines = stop(forks, pid, tmp_path, signal.SIGTERM)
    assert lines[-1] == f"stopped by SIGTERM; saved in {run_dir_in(tmp_path)}"


def test_one_signal_that_arrives_twice_is_one(forks: Forks, tmp_path: Path) -> None:
    """`timeout` sends it to the program and to its group."""

    def twice(pid: int, number: int) -> None:
        os.kill(pid, number)
        os.kill(pid, number)

    write_config(make_config("dqn"), tmp_path)
    pid = forks.start(TRAIN, tmp_path, {"at": "slow_steps", "n": 52})
    lines = stop(forks, pid, tmp_path, signal.SIGTERM, twice)
    assert lines[-1] == f"stopped by SIGTERM; saved in {run_dir_in(tmp_path)}"


def compiled_config(**changes: Any) -> Any:
    settings = {"learning_starts": 20, "hidden_sizes": (8,), "batch_size": 4}
    return make_quick_config("dqn", Path("runs"), settings, compile="on", total_timesteps=60, **changes)


def cut_while_compiling(forks: Forks, cwd: Path, **changes: Any) -> list[str]:
    """Ctrl-C in a terminal reaches the compilers too, which are children of the same group."""
    write_config(compiled_config(**changes), cwd)
    cut = {"at": "mark_compiler", "cache": str(cwd / "cache")}
    pid = forks.start(TRAIN, cwd, cut, group=True)
    return stop(forks, pid, cwd, signal.SIGINT, os.killpg)


@needs_compiler
@pytest.mark.sweep
def test_a_signal_while_kernels_compile_is_one_line(forks: Forks, tmp_path: Path) -> None:
    lines = cut_while_compiling(forks, tmp_path, eval_episodes=0)
    run_dir = run_dir_in(tmp_path)
    assert lines[-1] == f"stopped by SIGINT before the first checkpoint; resume starts {run_dir} again"
    assert (tmp_path / "log.txt").read_text().splitlines() == lines
    record = read_json(run_dir / "run.json")
    assert record["status"] == "stopped" and record["ended"] is not None


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("interval", [1000, 15], ids=["from the start", "from a checkpoint"])
def test_a_signal_while_kernels_compile_and_a_resume(interval: int, forks: Forks, tmp_path: Path) -> None:
    whole = forks.train(compiled_config(checkpoint_interval=interval), tmp_path / "whole")
    lines = cut_while_compiling(forks, tmp_path, checkpoint_interval=interval)
    if interval == 15:
        assert lines[-1] == f"stopped by SIGINT; {run_dir_in(tmp_path)} is as it was saved at step 15"
    assert compare_runs(whole, forks.resume(tmp_path)) == []
