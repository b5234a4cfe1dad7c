"""A run's evaluations share their environments: started once, results as in fresh ones, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from carrying_envs import CARRYING, Carrying
from conftest import make_quick_config, settings_of

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.envs.host.conformance import check_environment, with_conformance
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.host.worker_process import WorkerProcess
from rl_training.envs.host.workers import WorkerStepper
from rl_training.run import evaluate as evaluation
from rl_training.run.callbacks import Callback
from rl_training.run.evaluate import Evaluation, EvaluationPlan, Evaluator, evaluate
from rl_training.run.run import train
from rl_training.run.session import TrainingFailure

MODULE = f"carrying_envs:{CARRYING}"  # what a worker process can import
SWEEP = pytest.mark.sweep


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The worker processes that a test starts."""
    found: list[subprocess.Popen[bytes]] = []
    start = WorkerProcess.__init__

    def noted(worker: WorkerProcess, *arguments: Any) -> None:
        start(worker, *arguments)
        found.append(worker.process)

    monkeypatch.setattr(WorkerProcess, "__init__", noted)
    monkeypatch.setattr(evaluation, "cores", lambda: 4)
    yield found
    assert all(one.returncode is not None for one in found), "a worker process was left behind"


def learner_for(source: EnvSource, seeds: tuple[int, ...] = (0,)) -> tuple[Learner, EnvSource]:
    """An untrained learner, and the source with its class."""
    found = check_environment(source)
    cls = learner_class("dqn" if "discrete" in found.spec.action.kind else "sac")
    settings = parse(cls.settings_type, settings_of(cls.name, {"hidden_sizes": (8,)}))
    return cls.create(found.spec, settings, seeds), with_conformance(source, found)


def numbers(results: list[Evaluation]) -> Any:
    return [(one.returns, one.lengths, one.infos) for one in results]


def fresh_and_kept(source: EnvSource, episodes: int, **options: Any) -> tuple[Any, Any]:
    """The same episodes in fresh environments, and in those that have played others."""
    learner, source = learner_for(source, (3, 1))
    plan = EvaluationPlan(source, episodes, **options)
    with closing(Evaluator(learner, plan)) as evaluator:
        for step in (5, 37):
            evaluator.run(step)
        return numbers(evaluate(learner, plan, 90)), numbers(evaluator.run(90))


# --- the same results -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("carries", "episodes"),  # the second batch of 34 uses two environments of 32
    [
        *((carries, 2) for carries in ("actions", "episodes", "generator", "ends", "nothing")),
        ("actions", 34),
        *(pytest.param(carries, 34, marks=SWEEP) for carries in ("ends", "nothing")),
    ],
)
def test_evaluations_do_not_depend_on_earlier_ones(carries: str, episodes: int) -> None:
    fresh, kept = fresh_and_kept(EnvSource(CARRYING, {"carries": carries, "length": 9}), episodes)
    assert fresh == kept and len(fresh[0][0]) == episodes


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("HalfCheetah-v5", {"max_episode_steps": 40}),
        pytest.param("Ant-v5", {"max_episode_steps": 40}, marks=SWEEP),
        pytest.param("BipedalWalker-v3", {"max_episode_steps": 60}, marks=SWEEP),
        pytest.param("dm_control/cheetah-run-v0", {"max_episode_steps": 40}, marks=SWEEP),
        pytest.param("dm_control/finger-turn_hard-v0", {"max_episode_steps": 40}, marks=SWEEP),
        pytest.param("ALE/Breakout-v5", {"wrappers": {"atari": {}}, "max_episode_steps": 160}, marks=SWEEP),
    ],
)
def test_other_environments_repeat_themselves_too(env_id: str, kwargs: dict[str, Any]) -> None:
    needed = {"dm_control": "dm_control", "ALE": "ale_py", "BipedalWalker-v3": "Box2D"}.get(env_id.split("/")[0])
    pytest.importorskip(needed or "mujoco")
    fresh, kept = fresh_and_kept(EnvSource(env_id, kwargs), 2)
    assert fresh == kept


def test_without_a_class_environments_are_made_anew() -> None:
    """As those of `evaluate` are, which nothing has checked, and those that are restored inexactly."""
    for restore in (None, "inexact"):
        learner, source = learner_for(EnvSource(CARRYING, {"carries": "actions"}))
        plan = EvaluationPlan(EnvSource(CARRYING, source.kwargs, restore=restore), 34)  # type: ignore[arg-type]
        with closing(Evaluator(learner, plan)) as evaluator:
            assert numbers(evaluator.run(0)) == numbers(evaluator.run(0))


def test_a_class_that_is_wrong_would_be_noticed() -> None:
    """The control: these environments do carry something over."""
    learner, source = learner_for(EnvSource(CARRYING, {"carries": "actions"}))
    plan = EvaluationPlan(EnvSource(CARRYING, source.kwargs, restore="replay"), 2)
    with closing(Evaluator(learner, plan)) as evaluator:
        assert numbers(evaluator.run(0)) != numbers(evaluator.run(0))


class Scored(Carrying):
    """Ends, and has a number in its info, in episodes of even seeds alone."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, _ = super().step(action)
        return obs, reward, terminated and self.np_random_seed % 2 == 0, truncated, {"is_success": 1.0}


def test_an_episode_that_is_cut_has_no_number_of_an_earlier_one() -> None:
    source = EnvSource("<scored>", {}, lambda: Scored("nothing", length=4), info_metrics=("is_success",))
    learner, source = learner_for(source)
    plan = EvaluationPlan(source, 4, evaluation.EpisodeBound(9, 9))
    with closing(Evaluator(learner, plan)) as evaluator:
        found = [numbers(evaluator.run(step)) for step in range(4)]
    assert found == [numbers(evaluate(learner, plan, step)) for step in range(4)]
    assert len({len(one[0][2].get("is_success", ())) for one in found}) > 1, "not all episodes are cut"


# --- started once, closed always --------------------------------------------------------------------------------------
def test_a_run_starts_the_processes_of_its_evaluations_once(processes: list[Any], tmp_path: Path) -> None:
    def evaluations(**changes: Any) -> tuple[list[Any], int]:
        before = len(processes)
        values = {"total_timesteps": 30, "eval_interval": 10, "eval_episodes": 32, "seeds": (3, 4), **changes}
        config = make_quick_config("dqn", tmp_path / str(before), **values)
        run_dir = train(config, show_progress=False).run_dir
        rows = [json.loads(line) for line in (run_dir / "evaluations.jsonl").read_text().splitlines()]
        return rows, len(processes) - before

    (kept, started), (alone, none) = evaluations(workers=3, num_envs=1), evaluations(workers=0)
    assert len(kept) == 3 * 2 and kept == alone
    assert (started, none) == (1 + 2, 0)  # one that steps training's second environment, and two of evaluations


def run_counted(tmp_path: Path, carries: str, callbacks: Any = (), **changes: Any) -> None:
    Carrying.made = Carrying.closed = 0
    values = {"env_id": "<counted>", "total_timesteps": 40, "eval_interval": 10, "eval_episodes": 3, **changes}
    config = make_quick_config("sac", tmp_path, **values)
    train(config, env_factory=lambda **_: Carrying(carries, length=13), callbacks=callbacks, show_progress=False)


@pytest.mark.parametrize(("carries", "more"), [("nothing", 0), ("actions", 3)])
def test_one_more_evaluation_makes_no_more_environments_unless_they_carry_state(
    carries: str, more: int, tmp_path: Path
) -> None:
    made = []
    for interval in (20, 40):
        run_counted(tmp_path, carries, eval_interval=interval)
        made.append(Carrying.made)
        assert Carrying.closed == Carrying.made
    assert made[0] == made[1] + more  # of three episodes


class Raises(Callback):
    def on_evaluation(self, session: Any, metrics: Any) -> None:
        raise ValueError("of a callback")


def test_a_run_that_fails_closes_the_environments_of_its_evaluations(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="of a callback"):
        run_counted(tmp_path, "nothing", [Raises()])
    assert Carrying.made == Carrying.closed > 0


class Broken(gym.Env[Any, Any]):
    """Cannot be closed once `raises` is set."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-1, 1, (1,))
    closed, raises = 0, False

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.taken += 1
        return np.zeros(1, np.float32), 0.0, self.taken == 5, False, {}

    def close(self) -> None:
        Broken.closed += 1
        if Broken.raises:
            raise OSError("cannot be closed")


class LastToClose(Callback):
    def on_end(self, session: Any) -> None:
        Broken.closed, Broken.raises = 0, True


def test_training_environments_are_closed_where_those_of_evaluations_cannot_be(tmp_path: Path) -> None:
    config = make_quick_config("sac", tmp_path, env_id="<broken>", total_timesteps=30, eval_episodes=1)
    try:
        with pytest.raises((OSError, TrainingFailure), match="cannot be closed"):
            train(config, env_factory=lambda **_: Broken(), callbacks=[LastToClose()], show_progress=False)
        assert Broken.closed == 2
    finally:
        Broken.raises = False


def test_an_evaluation_that_was_cut_leaves_no_process_and_can_be_repeated(
    processes: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, source = learner_for(EnvSource(MODULE, {"carries": "actions", "length": 6}), (3, 4))
    evaluator = Evaluator(learner, EvaluationPlan(source, 32, workers=2))
    first = numbers(evaluator.run(7))
    assert isinstance(evaluator._rows.envs.stepper, WorkerStepper) and len(processes) == 1  # type: ignore[union-attr]
    step = WorkerProcess.send

    def cut(worker: WorkerProcess, data: Any) -> None:
        step(worker, data)
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(WorkerProcess, "send", cut)
        with pytest.raises(KeyboardInterrupt):
            evaluator.run(8)
    assert processes[0].returncode is not None
    assert numbers(evaluator.run(7)) == first and len(processes) == 2
    evaluator.close()
    evaluator.close()


class Interrupt(Callback):
    """Ctrl-C after the first evaluation."""

    def on_evaluation(self, session: Any, metrics: Any) -> None:
        plan = session.evaluator.plan
        assert (plan.workers, plan.timeout, plan.episodes) == (2, 40.0, 32)
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_a_run_that_is_stopped_ends_the_processes_of_its_evaluations(processes: list[Any], tmp_path: Path) -> None:
    values = {"total_timesteps": 30, "eval_interval": 10, "eval_episodes": 32, "seeds": (3, 4)}
    config = make_quick_config("dqn", tmp_path, **values, workers=2, env_timeout=40.0)
    with pytest.raises(KeyboardInterrupt):
        train(config, callbacks=[Interrupt()], show_progress=False)
    assert len(processes) == 2


def test_no_action_of_an_evaluation_is_remembered() -> None:
    learner, source = learner_for(EnvSource(CARRYING))
    with closing(Evaluator(learner, EvaluationPlan(source, 2))) as evaluator:
        evaluator.run(0)
        envs: SeededEnvs = evaluator._rows.envs  # type: ignore[union-attr, assignment]
        assert envs.logs == [[], []] and not envs.unlogged
