"""The manager over the whole registry: set up, hooks, resume."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import one_of_a_kind

from rl_training.run.callbacks import Callback
from rl_training.run.manager import DefaultExperimentManager


class Diary(Callback):
    """Writes down every hook, and stops the run at `stop_at`."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.events: list[tuple[str, int]] = []
        self.stop_at = stop_at

    def on_start(self, session) -> None:
        self.events.append(("start", session.step))

    def on_step(self, session) -> bool | None:
        self.events.append(("step", session.step))
        return False if session.step == self.stop_at else None

    def on_evaluation(self, session, metrics) -> None:
        assert metrics["eval_episodes"] == 1
        self.events.append(("evaluation", session.step))

    def on_checkpoint(self, session, path: Path) -> None:
        assert path.name == f"step_{session.step:012d}"
        self.events.append(("checkpoint", session.step))

    def on_end(self, session) -> None:
        self.events.append(("end", session.step))

    def steps(self, name: str) -> list[int]:
        return [step for event, step in self.events if event == name]


@pytest.mark.parametrize("algo", one_of_a_kind("dqn", "bc"))
def test_hooks_are_called_when_they_should_be(algo: str, quick_config, tmp_path: Path) -> None:
    diary = Diary()
    result = DefaultExperimentManager().setup(quick_config(algo, tmp_path, eval_interval=40), callbacks=[diary]).train()
    assert result.metrics["global_step"] == 120
    assert diary.events[0] == ("start", 0) and diary.events[-1] == ("end", 120)
    assert diary.steps("step") == list(range(1, 121))
    assert diary.steps("evaluation") == [40, 80, 120]
    assert diary.steps("checkpoint") == [50, 100, 120]


@pytest.mark.parametrize("algo", one_of_a_kind("td3", "bc"))
def test_a_hook_stops_the_run_and_resume_finishes_it(algo: str, quick_config, tmp_path: Path) -> None:
    manager = DefaultExperimentManager()
    stopped = manager.setup(quick_config(algo, tmp_path), callbacks=[Diary(stop_at=73)]).train()
    assert stopped.metrics["global_step"] == 73
    assert stopped.checkpoint_path.name == "step_000000000073"
    diary = Diary()
    resumed = manager.resume(stopped.checkpoint_path, callbacks=[diary]).train()
    assert resumed.run_dir == stopped.run_dir
    assert diary.steps("step") == list(range(74, 121))
    again = manager.resume(resumed.run_dir).train()
    assert again.metrics["already_finished"] and again.metrics["global_step"] == 120
    longer = manager.resume(resumed.run_dir, total_timesteps=140, run_suffix="longer").train()
    assert longer.run_dir != resumed.run_dir and longer.metrics["global_step"] == 140
