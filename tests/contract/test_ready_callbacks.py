"""The ready-made callbacks: when they stop, save, record and change, and that a resumed run is the same run."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import goal_envs
import numpy as np
import pytest
from conftest import make_quick_config
from resume_harness import compare_runs

import rl_training
from rl_training import Curriculum, RecordVideo, SaveAgents, StopAtReturn, StopWithoutImprovement
from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.checks import UserError
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run.agent import load_agent
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train

Walk = goal_envs.Walk


def stop_at(step: int) -> Any:
    return lambda session: session.step < step


class Fixed(Callback):
    """Gives evaluations the returns of a list; it must come first."""

    def __init__(self, returns: list[float]) -> None:
        self.returns = returns

    def on_evaluation(self, session: Any, metrics: dict[str, Any]) -> None:
        metrics["eval_return_mean"] = self.returns[session.step // 10 - 1]


def evaluated(folder: Path, **changes: Any) -> Any:
    return make_quick_config("dqn", folder, eval_interval=10, **changes)


# --- stopping ---------------------------------------------------------------------------------------------------------
def test_stop_at_a_return(tmp_path: Path, capsys) -> None:
    given = [Fixed([1.0, 4.9, 5.0, 9.0]), StopAtReturn(5)]
    result = train(evaluated(tmp_path), callbacks=given, show_progress=False)
    assert result.metrics["global_step"] == 30
    assert "StopAtReturn: the evaluation at step 30 has 5, at least 5" in capsys.readouterr().err
    assert json.loads((result.run_dir / "run.json").read_text())["status"] == "stopped"


RETURNS = [1.0, 3.0, 2.0, 2.5, 3.1, 3.0, 3.0, 3.1, 9.0, 9.0, 9.0, 9.0]


def test_stop_without_improvement_counts_evaluations_in_a_row(tmp_path: Path, capsys) -> None:
    result = train(evaluated(tmp_path), callbacks=[Fixed(RETURNS), StopWithoutImprovement(3)], show_progress=False)
    assert result.metrics["global_step"] == 80
    err = capsys.readouterr().err
    assert "StopWithoutImprovement: the last 3 evaluations were not above 3.1 (step 80)" in err


@pytest.mark.parametrize(("options", "step"), [({"min_delta": 0.5}, 50), ({"min_evaluations": 6}, 120)])
def test_stop_without_improvement_with_options(options: Any, step: int, tmp_path: Path) -> None:
    given = [Fixed(RETURNS), StopWithoutImprovement(3, **options)]
    assert train(evaluated(tmp_path), callbacks=given, show_progress=False).metrics["global_step"] == step


def test_the_patience_survives_a_resume(tmp_path: Path) -> None:
    first = [Fixed(RETURNS), StopWithoutImprovement(3), stop_at(65)]
    stopped = train(evaluated(tmp_path), callbacks=first, show_progress=False)
    assert stopped.metrics["global_step"] == 65
    again = [Fixed(RETURNS), StopWithoutImprovement(3)]
    assert resume_training(stopped.run_dir, callbacks=again, show_progress=False).metrics["global_step"] == 80


def test_without_evaluations_there_is_nothing_to_stop_at(tmp_path: Path, capsys) -> None:
    with pytest.raises(UserError, match="StopAtReturn needs evaluations: an environment, and eval_episodes above 0"):
        train(evaluated(tmp_path, eval_episodes=0), callbacks=StopAtReturn(1), show_progress=False)
    assert "error: callback StopAtReturn.on_start: UserError: StopAtReturn needs" in capsys.readouterr().err


WRONG = {
    "patience": (lambda: StopWithoutImprovement(0), "patience must be a whole number >= 1, got 0"),
    "return": (lambda: StopAtReturn("high"), "value must be a number, got 'high'"),
    "nan": (lambda: StopAtReturn(float("nan")), "value must be a number, got nan"),
    "every": (lambda: SaveAgents(1.5), "every must be a whole number >= 1, got 1.5"),
    "suffix": (lambda: RecordVideo(10, suffix=".avi"), "webm"),
    "stages": (lambda: Curriculum({}), "stages must be a mapping from steps to changes"),
    "negative": (lambda: Curriculum({-1: {"x": 1}}), "got {-1: {'x': 1}}"),
    "no changes": (lambda: Curriculum({0: 3}), "got {0: 3}"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize(("make", "message"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_rejected_at_once(make: Any, message: str) -> None:
    with pytest.raises(UserError) as rejected:
        make()
    assert message in str(rejected.value) and "\n" not in str(rejected.value)


def test_numbers_of_numpy_are_numbers() -> None:
    found = StopWithoutImprovement(np.int64(3), np.float32(0.5), np.int32(2))
    assert (found.patience, found.min_delta, found.min_evaluations) == (3, 0.5, 2)
    assert SaveAgents(np.int64(1000)).every == 1000 and StopAtReturn(np.float32(1.5)).value == 1.5
    assert Curriculum({np.int64(7): {"x": 1}}).stages == {7: {"x": 1}}


# --- saving and recording ---------------------------------------------------------------------------------------------
def test_agents_are_saved_every_n_steps(tmp_path: Path) -> None:
    config = make_quick_config("dqn", tmp_path, seeds=(3, 5), num_envs=2, eval_episodes=0)
    result = train(config, callbacks=[SaveAgents(35), SaveAgents(60, tmp_path / "mine")], show_progress=False)
    found = {path.name for path in (result.run_dir / "agents").glob("*step*")}
    assert found == {f"seed_{seed}_step_{step}.safetensors" for seed in (3, 5) for step in (36, 70, 106)}
    agent = load_agent(result.run_dir / "agents" / "seed_5_step_70.safetensors")
    assert agent.step == 70 and agent.learner.seeds == (5,)
    assert {path.name for path in (tmp_path / "mine").iterdir() if "seed_3" in path.name} == {
        "seed_3_step_60.safetensors",
        "seed_3_step_120.safetensors",
    }
    last = (tmp_path / "mine" / "seed_3_step_120.safetensors").read_bytes()
    assert last == (result.run_dir / "agents" / "seed_3_final.safetensors").read_bytes()


def test_agents_that_cannot_be_saved_do_not_end_the_run(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("")
    result = train(
        make_quick_config("dqn", tmp_path / "runs"),
        callbacks=SaveAgents(100, tmp_path / "file" / "x"),
        show_progress=False,
    )
    assert result.metrics["global_step"] == 120
    assert "SaveAgents: the agent of step 100 could not be written: Not a directory" in capsys.readouterr().err


def test_videos_do_not_change_the_run(tmp_path: Path, capsys) -> None:
    config = {"total_timesteps": 60, "eval_episodes": 0, "env_kwargs": {"max_episode_steps": 5}}
    plain = train(make_quick_config("dqn", tmp_path / "plain", **config), show_progress=False)
    filmed = train(
        make_quick_config("dqn", tmp_path / "filmed", **config), callbacks=RecordVideo(30), show_progress=False
    )
    assert sorted(path.name for path in (filmed.run_dir / "videos").iterdir()) == ["step_30.webm", "step_60.webm"]
    assert min(path.stat().st_size for path in (filmed.run_dir / "videos").iterdir()) > 500
    weights = [one / "learner.safetensors" for one in (plain.checkpoint_path, filmed.checkpoint_path)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    # An environment that cannot be rendered costs one line each time.
    config |= {"env_id": "Walk-v0", "env_kwargs": {}}
    train(make_quick_config("dqn", tmp_path / "dark", **config), callbacks=RecordVideo(30), show_progress=False)
    assert capsys.readouterr().err.count("RecordVideo: no video of step") == 2


def test_a_video_that_a_signal_interrupts_is_recorded_on_resume(ctrl_c, tmp_path: Path, monkeypatch) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(30)

    config = make_quick_config("dqn", tmp_path, eval_episodes=0, env_kwargs={"max_episode_steps": 5})
    with monkeypatch.context() as during:
        during.setattr("rl_training.run.ready_callbacks.record_video", interrupted)
        with pytest.raises(KeyboardInterrupt) as stopped:
            train(config, callbacks=RecordVideo(45), show_progress=False)
    assert stopped.value.result.metrics["global_step"] == 45  # type: ignore[attr-defined]
    (run_dir,) = tmp_path.iterdir()
    resume_training(run_dir, callbacks=RecordVideo(45), show_progress=False)
    assert sorted(path.name for path in (run_dir / "videos").iterdir()) == ["step_45.webm", "step_90.webm"]


# --- curriculum -------------------------------------------------------------------------------------------------------
SWEEP = [pytest.param(*one, marks=pytest.mark.sweep) for one in ((0, 29), (0, 62), (2, 62))]
STAGES = {0: {"target": 1}, 27: {"target": 4, "set_wind": 0.25}, 70: {"length": 9}}


def walk(folder: Path, **changes: Any) -> Any:
    given = {"env_id": "goal_envs:Walk-v0", "total_timesteps": 118, "log_interval": 17, "checkpoint_interval": 23}
    return make_quick_config("dqn", folder, **{**given, "eval_interval": 37, "seeds": (3, 5), "num_envs": 2, **changes})


class Watch(Callback):
    """The targets and winds that the open episodes have, by step."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[float, float]]] = {}
        self.started: dict[int, list[bool]] = {}

    def on_step(self, session: Any) -> None:
        rows = session.envs.rows
        self.seen[session.step] = [(float(target), float(wind)) for _, target, wind in rows.obs]
        self.started[session.step] = [not log for log in rows.logs]


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.sweep), 2])
def test_a_change_takes_effect_at_the_next_reset(workers: int, tmp_path: Path) -> None:
    watch = Watch()
    train(walk(tmp_path, workers=workers), callbacks=[Curriculum(STAGES), watch], show_progress=False)
    assert set(watch.seen[2]) == {(1.0, 0.0)}  # from the first step on
    steps = sorted(watch.seen)
    for row in range(4):
        for before, step in itertools.pairwise(steps):
            expected = (1.0, 0.0) if step < 27 else (4.0, 0.25)
            if watch.started[step][row]:
                assert watch.seen[step][row] == expected
            else:
                assert watch.seen[step][row] == watch.seen[before][row]  # never within an episode
    late = [step for step in steps if step >= 27 and (1.0, 0.0) in watch.seen[step]]
    assert late and max(late) < 27 + 2 * 6


@pytest.mark.sweep
@pytest.mark.parametrize(("workers", "stop"), [(2, 29), *SWEEP])
def test_a_resumed_curriculum_is_the_same_run(workers: int, stop: int, tmp_path: Path, monkeypatch) -> None:
    """At step 29 some open episodes have the changes of step 27, and some have not."""
    monkeypatch.chdir(tmp_path)
    config, whole = walk(Path("runs"), workers=workers), Watch()
    finished = train(config, callbacks=[Curriculum(STAGES), whole], show_progress=False)
    (tmp_path / "runs").rename(tmp_path / "whole")
    first, second = Watch(), Watch()
    given = [Curriculum(STAGES), first, stop_at(stop)]
    stopped = train(config, callbacks=given, show_progress=False)
    if stop == 29:
        state = load_checkpoint(stopped.checkpoint_path).state["parts"]["environments"]
        assert state["changes"] == {"set_wind": 0.25, "target": 4}
        assert {str(one) for one in state["row_changes"]} == {str({"target": 1}), str(state["changes"])}
    resumed = resume_training(
        stopped.run_dir,
        callbacks=[Curriculum(STAGES), second],
        env_id="goal_envs:Walk-v0",
        show_progress=False,
    )
    assert {**first.seen, **second.seen} == whole.seen
    assert compare_runs(tmp_path / "whole" / finished.run_dir.name, resumed.run_dir) == []


@pytest.mark.sweep
def test_a_resumed_curriculum_keeps_the_changes_of_others(tmp_path: Path) -> None:
    def later(session: Any) -> None:
        if session.step == 30:
            session.change_environment(target=9)

    def given(*more: Any) -> list[Any]:
        return [Curriculum({0: {"target": 1}}), later, *more]

    config, one_env = {"env_id": "Walk-v0", "eval_episodes": 0}, {"seeds": (3,), "num_envs": 1}
    whole, second = Watch(), Watch()
    train(walk(tmp_path / "whole", **config, **one_env), callbacks=given(whole), show_progress=False)
    cut = train(walk(tmp_path / "cut", **config, **one_env), callbacks=given(stop_at(40)), show_progress=False)
    curriculum, *others = given(second)
    resume_training(cut.run_dir, callbacks=[curriculum, *others], show_progress=False)
    assert second.seen == {step: rows for step, rows in whole.seen.items() if step > 40}
    assert second.seen[50] == [(9.0, 0.0)]
    new = Watch()  # the same object in a new run starts with its first stage
    train(walk(tmp_path / "new", **config, **one_env), callbacks=[curriculum, new], show_progress=False)
    assert new.seen[1] == [(1.0, 0.0)]


@pytest.mark.sweep
def test_a_function_of_the_step_and_a_resume_without_it(tmp_path: Path, capsys) -> None:
    def easier(step: int) -> dict[str, Any] | None:
        return None if step < 20 else {"target": 1 + step // 20}

    watch = Watch()
    stopped = train(walk(tmp_path), callbacks=[Curriculum(easier), watch, stop_at(50)], show_progress=False)
    assert {target for row in watch.seen.values() for target, _ in row} >= {2.0, 3.0}  # as made, then by the function
    later = Watch()
    resume_training(stopped.run_dir, callbacks=later, env_id="goal_envs:Walk-v0", show_progress=False)
    assert set(later.seen[max(later.seen)]) == {(3.0, 0.0)}  # the newest change stays
    assert "callbacks: Curriculum had a state in the checkpoint and is not passed again" in capsys.readouterr().err


def test_evaluations_have_the_environment_of_the_config(tmp_path: Path) -> None:
    config = walk(tmp_path, eval_episodes=3)
    impossible = train(config, callbacks=Curriculum({0: {"length": 1, "target": 90}}), show_progress=False)
    lines = (impossible.run_dir / "evaluations.jsonl").read_text().splitlines()
    assert max(max(json.loads(line)["lengths"]) for line in lines) > 1


def play(envs: SeededEnvs, steps: int, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    for _ in range(steps):
        envs.step(envs.action.spec.sample(drawn, envs.size))
        envs.advance()


def test_the_classes_of_restoring_keep_changes() -> None:
    """A native state and an environment that is made anew for every episode have the changes, too."""
    pytest.importorskip("mujoco")
    for source, changes in (
        (EnvSource("InvertedPendulum-v5", restore="native"), {"frame_skip": 5}),
        (EnvSource("<walk>", factory=Walk, restore="rebuilt"), {"target": 3, "set_wind": 0.1}),
    ):
        envs, other = (SeededEnvs(source, (0,), 2) for _ in range(2))
        envs.reset_all()
        play(envs, 10, seed=0)
        envs.change(changes)
        play(envs, 20, seed=1)
        assert envs.episodes != [0, 0] and any(envs.row_changes) and min(map(len, envs.logs)) + 1
        assert other.restore(envs.snapshot()) and other.changes == changes
        for one in (envs, other):
            play(one, 12, seed=2)
        assert envs.obs.tobytes() == other.obs.tobytes() and envs.episodes == other.episodes
        envs.close()
        other.close()


UNKNOWN: dict[str, Any] = {
    "unknown": ({"targte": 1}, "environment 'Walk-v0' has no attribute or method 'targte'; did you mean target?"),
    "a method": ({"close": 1}, "environment 'Walk-v0': close is a method, and only methods named set_... are called"),
    "private": ({"_np_random": 1}, "must name a public attribute or method, got '_np_random'"),
    "no value": ({"target": {1, 2}}, "the new target of the environment must be made of numbers, text, true, false"),
}


@pytest.mark.parametrize(("changes", "message"), UNKNOWN.values(), ids=UNKNOWN)
def test_changes_that_cannot_be_made_name_the_callback(changes: Any, message: str, tmp_path: Path, capsys) -> None:
    with pytest.raises(UserError) as rejected:
        train(walk(tmp_path, env_id="Walk-v0"), callbacks=Curriculum({0: {}, 30: changes}), show_progress=False)
    assert message in str(rejected.value)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert message in line and "callback Curriculum.on_" in line


def test_a_device_environment_cannot_be_changed(tmp_path: Path) -> None:
    config = make_quick_config("dqn", tmp_path, env_id="torch/CartPole-v1")
    with pytest.raises(UserError, match=r"only a gymnasium\.Env can be changed; .* in torch/CartPole-v1, a VectorEnv"):
        train(config, callbacks=Curriculum({0: {"gravity": 1.0}}), show_progress=False)


def test_a_setter_that_raises_is_a_failure_of_the_environment(tmp_path: Path) -> None:
    from rl_training.run.session import TrainingFailure

    with pytest.raises(TrainingFailure, match=r"changing set_wind raised ValueError: .*crash.json reproduces it"):
        train(walk(tmp_path, env_id="Walk-v0"), callbacks=Curriculum({0: {"set_wind": "strong"}}), show_progress=False)


@pytest.mark.parametrize("changes", [{"close": 1}, {"__class__": 1}, {"unwrapped.spec": 1}, {"absent": 1}])
def test_a_checkpoint_cannot_name_what_a_curriculum_cannot(changes: Any, tmp_path: Path) -> None:
    from rl_training.checkpoint.parts import StoredPart

    stopped = train(walk(tmp_path, env_id="Walk-v0"), callbacks=stop_at(30), show_progress=False)
    checkpoint = load_checkpoint(stopped.checkpoint_path)
    envs = SeededEnvs(EnvSource("Walk-v0", info_metrics=("is_success",)), (3, 5), 2)
    from rl_training.envs.environments_part import EnvironmentsPart

    part, stored = EnvironmentsPart(envs), StoredPart(checkpoint, "environments")
    part.check(stored)
    for bad in ({"changes": changes}, {"row_changes": [{}, {}, {}, changes]}):
        stored.values = {**checkpoint.state["parts"]["environments"], **bad}
        with pytest.raises(UserError, match="step_"):
            part.check(stored)


def test_all_of_them_are_exported() -> None:
    names = ("Callback", "Curriculum", "RecordVideo", "SaveAgents", "StopAtReturn", "StopWithoutImprovement")
    assert all(issubclass(getattr(rl_training, name), rl_training.Callback) for name in names)
    assert set(names) < set(dir(rl_training))


PAGE = (Path(__file__).resolve().parents[2] / "docs" / "callbacks.md").read_text(encoding="utf-8")


@pytest.mark.sweep
@pytest.mark.parametrize("code", re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
def test_the_programs_of_the_page_run(code: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = "total_timesteps=60, video=False, report=False, log_interval=20, eval_interval=15, eval_episodes=1"
    assert code.count("total_timesteps=20_000") == 1
    exec(code.replace("total_timesteps=20_000", small), {})
    (run_dir,) = (tmp_path / "runs").iterdir()
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["step"] == 60
    if "Heights" in code:
        assert all("time/hours" in row for row in rows) and any("eval/highest" in row for row in rows)
