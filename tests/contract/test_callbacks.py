"""What a caller may pass as callbacks, and what becomes of a run whose callback raises."""

from __future__ import annotations

import functools
import json
import traceback
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training import DQN
from rl_training.core.checks import UserError
from rl_training.run.callbacks import Callback, as_callbacks
from rl_training.run.manager import DefaultExperimentManager
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.runtime.dqn_trainer import train_dqn


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session: Any) -> bool:
        return bool(session.step < self.step)


class Counter:
    """An object that can be called."""

    calls = 0

    def __call__(self, session: Any) -> None:
        self.calls += 1


def stop_at_30(session: Any) -> Any:
    return np.float64(session.step) < 30  # a numpy boolean


WRONG = {
    "class": (StopAt, "callbacks must be an instance, got the class StopAt; pass StopAt()"),
    "number": (3, "callbacks must be a Callback, a function of the session or a list of them, got 3"),
    "text": ("abc", "callbacks must be a Callback, a function of the session or a list of them, got 'abc'"),
    "in a list": ([StopAt(1), None], "callbacks[1] must be a Callback, a function of the session, got None"),
    "class in a list": ([StopAt], "callbacks[0] must be an instance, got the class StopAt; pass StopAt()"),
    "two arguments": (
        lambda locals_, globals_: True,
        "callbacks must be a function of one argument, the session, <lambda> takes (locals_, globals_)",
    ),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_wrong_callbacks_are_rejected_in_one_line(given: Any, message: str, quick_config, tmp_path: Path) -> None:
    config, manager = quick_config("dqn", tmp_path / "runs"), DefaultExperimentManager()
    ways_in = (
        lambda: DQN(config).learn(callbacks=given),
        lambda: manager.setup(config, callbacks=given),
        lambda: manager.resume(tmp_path, callbacks=given),
        lambda: train_dqn(config, callbacks=given),
        lambda: resume_training(tmp_path / "no run", callbacks=given),
    )
    for start in ways_in:
        with pytest.raises(UserError) as refused:
            start()
        assert str(refused.value).endswith(message)
    assert not (tmp_path / "runs").exists()


async def coroutine(session: Any) -> None: ...


def test_a_coroutine_is_rejected() -> None:
    with pytest.raises(UserError, match="callbacks must be a plain function, coroutine is a coroutine"):
        as_callbacks(coroutine)


def test_one_callback_or_function_is_taken_without_a_list(quick_config, tmp_path: Path) -> None:
    counter, partial = Counter(), functools.partial(lambda limit, session: session.step < limit, 40)
    for given, step in ((StopAt(20), 20), (stop_at_30, 30), (partial, 40), ([counter, StopAt(20)], 20)):
        result = train_dqn(quick_config("dqn", tmp_path), callbacks=given, show_progress=False)
        assert result.metrics["global_step"] == step
    assert counter.calls == 20
    resumed = resume_training(result.run_dir, callbacks=stop_at_30, show_progress=False)
    assert resumed.metrics["global_step"] == 30


class Boom(Callback):
    def on_step(self, session: Any) -> None:
        if session.step == 70:
            self.divide(session)

    def divide(self, session: Any) -> None:
        _ = 1 / 0


def record_of(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "run.json").read_text())


def test_an_exception_in_a_callback_ends_the_run_as_failed(quick_config, tmp_path: Path) -> None:
    config = quick_config("dqn", tmp_path)
    with pytest.raises(ZeroDivisionError) as caught:
        train_dqn(config, callbacks=Boom(), show_progress=False)
    frames = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert frames[-2:] == ["on_step", "divide"]  # the error itself, from where it was raised
    (run_dir,) = tmp_path.iterdir()
    record = record_of(run_dir)
    assert record["status"] == "failed" and record["ended"] is not None
    assert record["failure"] == "callback Boom.on_step: ZeroDivisionError: division by zero"
    assert [path.name for path in (run_dir / "checkpoints").iterdir()] == ["step_000000000050"]
    assert resume_training(run_dir, show_progress=False).metrics["global_step"] == 120
    assert record_of(run_dir)["status"] == "finished" and record_of(run_dir)["failure"] is None


def test_a_file_error_in_a_callback_is_not_taken_for_a_full_disk(quick_config, tmp_path: Path) -> None:
    def write(session: Any) -> None:
        raise PermissionError(13, "Permission denied", "/elsewhere/mine.csv")

    with pytest.raises(PermissionError):
        train_dqn(quick_config("dqn", tmp_path), callbacks=write, show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    failure = record_of(run_dir)["failure"]
    assert failure.endswith("write.on_step: PermissionError: [Errno 13] Permission denied: '/elsewhere/mine.csv'")


def test_an_unforeseen_exception_in_training_is_recorded(quick_config, tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise LookupError("a bug\nin two lines")

    monkeypatch.setattr("rl_training.run.session.Session.log_metrics", fail)
    with pytest.raises(LookupError):
        train_dqn(quick_config("dqn", tmp_path), show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert record_of(run_dir)["status"] == "failed"
    assert record_of(run_dir)["failure"] == "LookupError: a bug in two lines"


def test_a_rejected_resume_leaves_the_record_as_it_is(quick_config, tmp_path: Path) -> None:
    result = train_dqn(quick_config("dqn", tmp_path), callbacks=StopAt(20), show_progress=False)
    before = record_of(result.run_dir)
    with pytest.raises(UserError, match="observation_space has changed"):
        resume_training(result.run_dir, env_id="Acrobot-v1", show_progress=False)
    assert record_of(result.run_dir) == before


LEAVING = {
    "exit": (SystemExit(3), "SystemExit: 3"),
    "interrupt": (KeyboardInterrupt(), "KeyboardInterrupt"),
}


@pytest.mark.parametrize(("error", "reason"), LEAVING.values(), ids=LEAVING)
def test_leaving_a_callback_ends_the_run_as_failed(
    error: BaseException, reason: str, quick_config, tmp_path: Path
) -> None:
    class Leave(Callback):
        def on_step(self, session: Any) -> None:
            if session.step == 70:
                raise error

    with pytest.raises(type(error)) as caught:
        train_dqn(quick_config("dqn", tmp_path), callbacks=Leave(), show_progress=False)
    assert caught.value is error
    (run_dir,) = tmp_path.iterdir()
    assert record_of(run_dir)["status"] == "failed"
    assert record_of(run_dir)["failure"] == f"callback Leave.on_step: {reason}"
    assert resume_training(run_dir, show_progress=False).metrics["global_step"] == 120


def test_leaving_an_environment_ends_the_run_as_failed(quick_config, tmp_path: Path) -> None:
    class Leaving(gym.Wrapper):
        leaves = False

        def step(self, action: Any) -> Any:
            if Leaving.leaves:
                raise SystemExit(3)
            return super().step(action)

    def leave(session: Any) -> None:
        Leaving.leaves = session.step == 20

    config = quick_config("dqn", tmp_path, env_kwargs={})
    with pytest.raises(SystemExit):
        train_dqn(config, None, leave, lambda: Leaving(gym.make("CartPole-v1")), show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert (record_of(run_dir)["status"], record_of(run_dir)["failure"]) == ("failed", "SystemExit: 3")


def test_on_log_gets_every_row_of_the_metrics(quick_config, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []

    class Collect(Callback):
        def on_log(self, session: Any, logged: Any) -> None:
            assert len(logged) == len(session.seeds)
            rows.extend(dict(row) for row in logged)

    result = train(quick_config("dqn", tmp_path, seeds=(3, 1)), callbacks=Collect(), show_progress=False)
    written = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    assert rows == written and any("eval/mean_reward" in row for row in rows)


def test_on_log_can_stop_the_run(quick_config, tmp_path: Path) -> None:
    class Enough(Callback):
        def on_log(self, session: Any, logged: Any) -> bool:
            return session.step < 60

    result = train(quick_config("dqn", tmp_path), callbacks=Enough(), show_progress=False)
    assert result.metrics["global_step"] == 60
