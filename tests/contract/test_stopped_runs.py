"""Ctrl-C and SIGTERM in Python: exceptions that nobody swallows, which tell what was saved."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from rl_training import DQN
from rl_training.core.signals import Stopped, StopSignals, active_signals
from rl_training.envs.host.vector import EnvironmentFailure
from rl_training.files.run_directory import RunRecord
from rl_training.loops.off_policy import OffPolicy
from rl_training.run import artifacts as closing
from rl_training.run import run as trainer
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training

pytestmark = pytest.mark.usefixtures("ctrl_c")


class Signal(Callback):
    """Sends this process a signal at one step."""

    def __init__(self, number: int, step: int) -> None:
        self.number, self.step = number, step

    def on_step(self, session) -> None:
        if session.step == self.step:
            os.kill(os.getpid(), self.number)


def status(run_dir: Path) -> str:
    return str(json.loads((run_dir / "run.json").read_text())["status"])


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_in_python_is_no_exception_and_tells_what_was_saved(
    number: signal.Signals, kind: type, quick_config, tmp_path: Path, capsys
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(kind) as caught:
        try:
            DQN(quick_config("dqn", tmp_path)).learn(callbacks=[Signal(number, 70)], show_progress=False)
        except Exception:
            pytest.fail("swallowed")
    stop = caught.value
    (run_dir,) = tmp_path.iterdir()
    assert isinstance(stop, Stopped) and stop.result is not None
    assert str(stop) == f"stopped by {number.name}; saved in {run_dir}"
    assert (stop.result.run_dir, stop.result.checkpoint_path.name) == (run_dir, "step_000000000070")
    assert status(run_dir) == "stopped" and signal.getsignal(number) is before
    # Python shows a KeyboardInterrupt with its message; a SystemExit ends a program without a word.
    assert capsys.readouterr().err.splitlines() == ([str(stop)] if kind is SystemExit else [])
    assert resume_training(run_dir, show_progress=False).metrics["global_step"] == 120


def test_a_second_run_in_the_same_interpreter_is_not_stopped(quick_config, tmp_path: Path) -> None:
    config = quick_config("dqn", tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trainer.train(config, callbacks=[Signal(signal.SIGINT, 70)], show_progress=False)
    assert trainer.train(config, show_progress=False).metrics["global_step"] == 120


def test_an_environment_that_the_same_signal_broke_is_stopped_and_not_failed(
    quick_config, tmp_path: Path, monkeypatch
) -> None:
    """A terminal's Ctrl-C reaches the processes that an environment has started, too."""

    def broken(regime, clock, learner, after_step) -> None:
        clock.count(60)
        after_step.__self__.checkpoint()
        os.kill(os.getpid(), signal.SIGINT)
        raise EnvironmentFailure("the simulator is gone", {})

    monkeypatch.setattr(OffPolicy, "run", broken)
    with pytest.raises(KeyboardInterrupt, match="is as it was saved at step 60") as caught:
        trainer.train(quick_config("dqn", tmp_path), show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert status(run_dir) == "stopped" and not (run_dir / "crash.json").exists()
    assert caught.value.result.checkpoint_path.name == "step_000000000060"  # type: ignore[attr-defined]


def signal_in(monkeypatch, owner: object, name: str, number: int, when=lambda *_: True) -> None:
    """Sends this process a signal as a function begins."""
    function = getattr(owner, name)

    def call(*arguments, **keywords):
        if when(*arguments):
            os.kill(os.getpid(), number)
        return function(*arguments, **keywords)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize("place", ["copy", "environments", "replay"])
def test_a_resume_into_another_folder_that_is_stopped_at_once_leaves_nothing(
    place: str, quick_config, tmp_path: Path, monkeypatch
) -> None:
    owner, name = {
        "copy": (shutil, "copytree"),
        "environments": (trainer, "make_envs"),
        "replay": (trainer, "make_replay"),
    }[place]
    done = trainer.train(quick_config("dqn", tmp_path / "first"), show_progress=False)
    before = (done.run_dir / "run.json").read_bytes()
    signal_in(monkeypatch, owner, name, signal.SIGINT)
    removing = []
    remove = shutil.rmtree
    monkeypatch.setattr(shutil, "rmtree", lambda *a, **k: (removing.append(active_signals().raises), remove(*a, **k)))
    with pytest.raises(KeyboardInterrupt) as caught:
        resume_training(done.run_dir, 150, tmp_path / "second", show_progress=False)
    assert list((tmp_path / "second").iterdir()) == [] and removing == [False]
    assert str(caught.value) == f"stopped by SIGINT; {done.run_dir} is unchanged"
    assert caught.value.result is None  # type: ignore[attr-defined]
    assert (done.run_dir / "run.json").read_bytes() == before


@pytest.mark.parametrize("resumed", [False, True], ids=["train", "resume"])
def test_a_signal_while_the_end_is_recorded_leaves_a_finished_run(
    resumed: bool, quick_config, tmp_path: Path, monkeypatch
) -> None:
    config = quick_config("dqn", tmp_path)
    if resumed:
        run_dir = trainer.train(config, callbacks=lambda session: session.step < 30, show_progress=False).run_dir
    signal_in(monkeypatch, RunRecord, "end", signal.SIGTERM)
    with pytest.raises(Stopped) as caught:
        if resumed:
            resume_training(run_dir, show_progress=False)
        else:
            trainer.train(config, show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert status(run_dir) == "finished"
    assert str(caught.value).startswith(f"stopped by SIGTERM; the run is finished in {run_dir}")
    result = caught.value.result
    assert result is not None and result.checkpoint_path.name == "step_000000000120"
    assert result.metrics["global_step"] == 120


def test_a_run_that_ends_is_not_given_up_by_a_signal(quick_config, tmp_path: Path, monkeypatch) -> None:
    """The thread that watches must not write into a record that the main thread is writing."""
    found: list[StopSignals] = []
    end = RunRecord.end

    def ending(record: RunRecord, state: str, **values: object) -> None:
        found.append(active_signals())
        found[0].on_give_up()
        end(record, state, **values)

    monkeypatch.setattr(RunRecord, "end", ending)
    done = trainer.train(quick_config("dqn", tmp_path), show_progress=False)
    assert len(found) == 1 and status(done.run_dir) == "finished"


@pytest.mark.parametrize("name", ["environment_entries", "recorded_failures"])
def test_a_signal_as_a_run_begins_leaves_a_stopped_run(name: str, quick_config, tmp_path: Path, monkeypatch) -> None:
    config = quick_config("dqn", tmp_path)
    with monkeypatch.context() as patch:
        signal_in(patch, trainer, name, signal.SIGINT)
        with pytest.raises(KeyboardInterrupt) as caught:
            trainer.train(config, show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert status(run_dir) == "stopped"
    assert str(caught.value) == f"stopped by SIGINT before the first checkpoint; resume starts {run_dir} again"
    assert resume_training(run_dir, show_progress=False).metrics["global_step"] == 120


def test_a_signal_behind_the_making_of_a_run_leaves_a_stopped_run(quick_config, tmp_path: Path, monkeypatch) -> None:
    make = RunRecord.create

    def made(*arguments):
        opened = make(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        return opened

    monkeypatch.setattr(RunRecord, "create", made)
    with pytest.raises(KeyboardInterrupt, match="before the first checkpoint; resume starts"):
        trainer.train(quick_config("dqn", tmp_path), show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert status(run_dir) == "stopped"


MISSING = {
    "neither": (False, False, ""),
    "video": (True, False, ", its video is missing"),
    "report": (False, True, ", its report is missing"),
    "both": (True, True, ", its video and report are missing"),
}


@pytest.mark.parametrize(("video", "report", "missing"), MISSING.values(), ids=MISSING)
def test_a_finished_run_that_is_stopped_names_what_is_missing(
    video: bool, report: bool, missing: str, quick_config, tmp_path: Path, monkeypatch
) -> None:
    config = quick_config("dqn", tmp_path, eval_episodes=0, video=video, report=report)
    signal_in(monkeypatch, RunRecord, "end", signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as caught:
        trainer.train(config, show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert str(caught.value) == f"stopped by SIGINT; the run is finished in {run_dir}{missing}"
    assert [(run_dir / name).exists() for name in ("video.webm", "report.html")] == [False, False]


def test_a_run_that_is_stopped_in_its_report_has_its_video(quick_config, tmp_path: Path, monkeypatch) -> None:
    config = quick_config("dqn", tmp_path, eval_episodes=0, video=True, report=True)
    monkeypatch.setattr(closing, "record_video", lambda *_: None)
    signal_in(monkeypatch, closing, "write_report", signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match=r", its report is missing$"):
        trainer.train(config, show_progress=False)
