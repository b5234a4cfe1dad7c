"""Values and states of callbacks: in the rows, in the checkpoints, and the same after a resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.checks import UserError
from rl_training.run.callbacks import Callback
from rl_training.run.logged_values import LoggedValues
from rl_training.run.resume import resume_training
from rl_training.run.run import train

CLOCK = ("time/fps", "time/time_elapsed")


def rows_of(run_dir: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in CLOCK} for row in rows]


class Logs(Callback):
    """Logs a last value, a mean and one value for each seed, from a number that it carries along."""

    def __init__(self) -> None:
        self.total = 0

    def on_step(self, session: Any) -> None:
        self.total += session.step % 7
        session.log("mine/last", self.total)
        session.log_mean("mine/mean", session.step % 5)
        if session.step % 3 == 0:
            session.log_mean("mine/by_seed", np.array([self.total, session.step][: len(session.seeds)]))

    def on_log(self, session: Any, rows: Any) -> None:
        for row in rows:
            row["mine/added"] = np.float32(self.total)

    def on_evaluation(self, session: Any, metrics: Any) -> None:
        session.log("mine/evaluated", torch.tensor(session.step))

    def state(self) -> dict[str, Any]:
        return {"total": np.int64(self.total)}

    def load(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def stop_at(step: int) -> Any:
    return lambda session: session.step < step


def test_values_are_in_the_next_row_and_the_same_after_a_resume(quick_config, tmp_path: Path) -> None:
    changes = {"seeds": (3, 5), "eval_interval": 30}
    whole = train(quick_config("dqn", tmp_path / "whole", **changes), callbacks=Logs(), show_progress=False)
    rows = rows_of(whole.run_dir)
    first, second = (row for row in rows if row["step"] == 40 and "train/n_updates" in row)
    steps = range(21, 41)
    assert first["mine/last"] == second["mine/last"] == sum(step % 7 for step in range(1, 41))
    assert first["mine/mean"] == np.mean([step % 5 for step in steps])
    threes = [step for step in steps if step % 3 == 0]
    assert second["mine/by_seed"] == np.mean(threes)
    assert first["mine/by_seed"] == np.mean([sum(k % 7 for k in range(1, step + 1)) for step in threes])
    assert first["mine/evaluated"] == 30.0
    assert all(isinstance(row["mine/added"], float) for row in rows)  # rows of evaluations, too

    # Stopped in the middle of an interval: the checkpoint has the values so far.
    given = quick_config("dqn", tmp_path / "cut", **changes)
    stopped = train(given, callbacks=[Logs(), stop_at(52)], show_progress=False)
    resumed = resume_training(stopped.run_dir, callbacks=Logs(), show_progress=False)
    assert rows_of(resumed.run_dir) == rows
    parts = [load_checkpoint(one.checkpoint_path).state["parts"]["session"] for one in (whole, resumed)]
    assert parts[0]["callbacks"] == parts[1]["callbacks"] == {"Logs": {"total": sum(k % 7 for k in range(1, 121))}}
    assert parts[0]["logged"] == parts[1]["logged"]


def test_a_kill_at_any_step_of_an_interval_changes_no_row(quick_config, tmp_path: Path) -> None:
    """The checkpoint of a step has what on_step did at it: a resumed run does not call it again."""

    class Dies(Exception):
        pass

    class DieAt(Callback):
        def __init__(self, step: int) -> None:
            self.step = step

        def on_step(self, session: Any) -> None:
            if session.step == self.step:
                raise Dies

    changes = {"total_timesteps": 60, "log_interval": 7, "checkpoint_interval": 5, "eval_episodes": 0}
    whole = train(quick_config("dqn", tmp_path / "whole", **changes), callbacks=Logs(), show_progress=False)
    for step in (14, 26):
        folder = tmp_path / str(step)
        with pytest.raises(Dies):
            train(quick_config("dqn", folder, **changes), callbacks=[Logs(), DieAt(step)], show_progress=False)
        (run_dir,) = folder.iterdir()
        resume_training(run_dir, callbacks=Logs(), show_progress=False)
        assert rows_of(run_dir) == rows_of(whole.run_dir)


def test_a_mean_starts_anew_after_a_single_value() -> None:
    logged = LoggedValues((0, 1))
    for value, mean in ((9, True), (5, False), ([1, 2], True), ([3, 4], True)):
        logged.log("x", value, mean)
    logged.log("last", 1, mean=True)
    logged.log("last", 7, mean=False)
    resumed = LoggedValues((0, 1))
    assert resumed.check(logged.state()) is None
    resumed.load(logged.state())
    resumed.log("last", 3, mean=True)
    assert logged.take() == [{"last": 7, "x": 2}, {"last": 7, "x": 3}]
    assert resumed.take() == [{"last": 3, "x": 2}, {"last": 3, "x": 3}]


def test_values_that_are_not_finite_survive_a_checkpoint(quick_config, tmp_path: Path) -> None:
    def log(session: Any) -> None:
        if session.step == 41:
            session.log("odd", math.inf)
            session.log_mean("nan", math.nan)

    class Collect(Callback):
        def __init__(self) -> None:
            self.rows: list[dict[str, Any]] = []

        def on_log(self, session: Any, rows: Any) -> None:
            self.rows.extend(dict(row) for row in rows)

    stopped = train(quick_config("dqn", tmp_path), callbacks=[log, stop_at(45)], show_progress=False)
    collect = Collect()
    resumed = resume_training(stopped.run_dir, callbacks=collect, show_progress=False)
    (row,) = [row for row in collect.rows if row["step"] == 60 and "train/n_updates" in row]
    assert row["odd"] == math.inf and math.isnan(row["nan"])
    (written,) = [row for row in rows_of(resumed.run_dir) if row["step"] == 60 and "train/n_updates" in row]
    assert written["odd"] is None and "odd" not in rows_of(resumed.run_dir)[-1]


WRONG = {
    "text": (("x", "high"), "x must be a number, got 'high'"),
    "an object": (("x", object), "x must be a number, got <class 'object'>"),
    "too few": (("x", [1, 2, 3]), "x must be a number or one for each seed (1), got [1, 2, 3]"),
    "the step": (("step", 1), "the name of a metric must be text other than step and seed, got 'step'"),
    "no name": ((3, 1), "the name of a metric must be text other than step and seed, got 3"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_wrong_values_name_the_callback(given: Any, message: str, quick_config, tmp_path: Path, capsys) -> None:
    class Diary(Callback):
        def on_step(self, session: Any) -> None:
            session.log(*given)

    with pytest.raises(UserError) as caught:
        train(quick_config("dqn", tmp_path), callbacks=Diary(), show_progress=False)
    assert str(caught.value) == message
    (run_dir,) = tmp_path.iterdir()
    assert json.loads((run_dir / "run.json").read_text())["failure"] == f"callback Diary.on_step: UserError: {message}"
    lines = [line for line in capsys.readouterr().err.splitlines() if "Diary" in line]
    assert lines == [f"error: callback Diary.on_step: UserError: {message}; the run is in {run_dir}"]


ROWS: dict[str, Any] = {
    "a list": (lambda row: row.update(x=[1]), "x must be a number, got [1]"),
    "the step": (lambda row: row.update(step=3), "may add values to a row, not change its step or seed"),
    "no seed": (lambda row: row.pop("seed"), "may add values to a row, not change its step or seed"),
    "a number as name": (lambda row: row.update({3: 1}), "the name of a metric must be text, got 3"),
}


@pytest.mark.parametrize(("change", "message"), ROWS.values(), ids=ROWS)
def test_wrong_rows_name_the_callback(change: Any, message: str, quick_config, tmp_path: Path, capsys) -> None:
    class Adds(Callback):
        def on_log(self, session: Any, rows: Any) -> None:
            change(rows[0])

    with pytest.raises(UserError, match=r"must be|may add"):
        train(quick_config("dqn", tmp_path), callbacks=Adds(), show_progress=False)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "Adds" in line]
    assert line.startswith("error: callback Adds.on_log: UserError: ") and message in line


# --- states -----------------------------------------------------------------------------------------------------------
class Count(Callback):
    def __init__(self) -> None:
        self.steps = 0

    def on_step(self, session: Any) -> None:
        self.steps += 1

    def state(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]


def test_states_of_several_callbacks_of_a_class(quick_config, tmp_path: Path) -> None:
    first, second = Count(), Count()
    second.steps = 1000
    stopped = train(quick_config("dqn", tmp_path), callbacks=[first, second, stop_at(30)], show_progress=False)
    again = [Count(), Count()]
    resume_training(stopped.run_dir, callbacks=again, show_progress=False)
    assert [one.steps for one in again] == [120, 1120]


def test_a_resume_without_or_with_another_callback_works(quick_config, tmp_path: Path, capsys) -> None:
    stopped = train(quick_config("dqn", tmp_path), callbacks=[Count(), stop_at(30)], show_progress=False)
    logs = Logs()
    resume_training(stopped.run_dir, callbacks=[logs, stop_at(60)], show_progress=False)
    assert logs.total == sum(step % 7 for step in range(31, 61))
    notice = "callbacks: Count had a state in the checkpoint and is not passed again"
    assert notice in capsys.readouterr().err
    count = Count()
    resume_training(stopped.run_dir, callbacks=[count], show_progress=False)
    assert count.steps == 30 + 60  # its state of step 30 was saved again
    assert "callbacks: Logs had a state in the checkpoint and is not passed again" in capsys.readouterr().err


@pytest.mark.parametrize("state", [{"x": object()}, [1], {"x": math.nan}, {1: 2}, {"x": {2, 3}}])
def test_a_state_of_other_values_names_the_callback(state: Any, quick_config, tmp_path: Path, capsys) -> None:
    class Odd(Callback):
        def state(self) -> Any:
            return state

    with pytest.raises(UserError, match="the state of a callback must be a dictionary with text keys of numbers, text"):
        train(quick_config("dqn", tmp_path), callbacks=Odd(), show_progress=False)
    assert "error: callback Odd.state: UserError: the state of a callback" in capsys.readouterr().err
    (run_dir,) = tmp_path.iterdir()
    assert rows_of(run_dir) == []  # before the first step


def test_an_attribute_of_the_name_is_not_called(quick_config, tmp_path: Path) -> None:
    count = Count()
    count.state = {"steps": 3}  # type: ignore[method-assign, assignment]
    result = train(quick_config("dqn", tmp_path), callbacks=count, show_progress=False)
    assert load_checkpoint(result.checkpoint_path).state["parts"]["session"]["callbacks"] == {}


def test_a_state_that_cannot_be_loaded_names_the_callback(quick_config, tmp_path: Path, capsys) -> None:
    stopped = train(quick_config("dqn", tmp_path), callbacks=[Count(), stop_at(30)], show_progress=False)
    before = (stopped.run_dir / "run.json").read_text()

    class Newer(Count):
        def load(self, state: dict[str, Any]) -> None:
            raise KeyError("rounds")

    Newer.__name__ = "Count"
    with pytest.raises(KeyError):
        resume_training(stopped.run_dir, callbacks=Newer(), show_progress=False)
    assert "error: callback Count.load: KeyError: 'rounds'" in capsys.readouterr().err
    assert (stopped.run_dir / "run.json").read_text() == before  # and it can be resumed
    assert resume_training(stopped.run_dir, show_progress=False).metrics["global_step"] == 120
