"""A run cut by kill -9 and resumed ends with the bits of one that was not, wherever the cut falls."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ONE_OF_A_KIND, one_of_a_kind
from resume_harness import (
    Forks,
    compare_runs,
    environments,
    make_config,
    read_json,
    run_dir_in,
    start_program,
    wait_for,
    write_config,
)

from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.run.resume import resume_training

CASES = [(algo, family) for algo in algorithm_names() for family in environments(learner_class(algo))]
ONLINE = [algo for algo in algorithm_names() if not learner_class(algo).offline]
OFFLINE = [algo for algo in algorithm_names() if learner_class(algo).offline]
CAPACITY, LEARNING_STARTS, EVERY = 64, 27, 23  # of the ring; of learning; between checkpoints
Where = dict[str, Any]
# What the run is cut by, and what must be true of that moment.
CUTS: dict[str, tuple[dict[str, Any], Callable[[Where], bool]]] = {
    "before the first checkpoint": ({"at": "step", "n": 5}, lambda cut: 0 < cut["step"] < EVERY),
    "before learning": ({"at": "step", "n": 25}, lambda cut: EVERY < cut["step"] < LEARNING_STARTS),
    "mid-episode": (
        {"at": "mid_episode", "n": 57, "save": True},
        lambda cut: min(cut["open_lengths"]) > 0 and cut["since_training"] > 0 and cut["updates"] > 0,
    ),
    "at an episode's end": (
        {"at": "episode_end", "n": 39, "save": True},
        lambda cut: min(cut["open_lengths"]) == 0 and cut["updates"] > 0,
    ),
    "between a delayed actor's updates": (
        {"at": "delay", "n": 51, "save": True},
        lambda cut: any(cut["into_a_delay"]) and cut["updates"] > 0,
    ),
    "after the ring wrapped": (
        {"at": "step", "n": 95, "save": True},
        lambda cut: cut["added"] > CAPACITY and cut["added"] % CAPACITY != 0,
    ),
    "between two rollouts": (
        {"at": "between_rollouts", "n": 61, "save": True},
        lambda cut: cut["since_training"] == 0 and cut["updates"] > 0,
    ),
    "between two minibatches": (
        {"at": "learning", "n": 10},
        lambda cut: cut["place"] == "learning" and cut["updates"] == 9 and cut["step"] > EVERY,
    ),
    "during an evaluation": ({"at": "evaluation", "n": 9}, lambda cut: cut["place"] == "evaluation"),
    "during a save": ({"at": "save", "call": "fsync", "n": 5}, lambda cut: cut["step"] in (23, 24)),
    "during a rotation": ({"at": "save", "call": "unlink", "n": 2}, lambda cut: cut["step"] > 2 * EVERY),
}


ALL_CUTS = ("td3", "iql")  # in the default run
FAMILIES = ("tqc", "mid-episode")
SWEEP = pytest.mark.sweep
# Of environments and their replay: offline there are none, and nothing waits.
ONLINE_CUTS = ("before learning", "mid-episode", "at an episode's end", "after the ring wrapped")
ROLLOUT_CUTS, REPLAY_CUTS = ("between two rollouts", "between two minibatches"), ("after the ring wrapped",)


def matrix() -> Iterator[Any]:
    """Every cut for every entry and family, those of expensive steps slow; the default run has one cut of one entry of
    a kind, every cut of an online and an offline entry, those of rollouts, and one of each family."""
    for algo, family in CASES:
        cls = learner_class(algo)
        delayed = hasattr(cls.settings_type, "policy_delay")
        cheap = family == "classic" and cls.observations != ("image",)
        for cut in CUTS:
            others = REPLAY_CUTS if issubclass(cls, OnPolicyLearner) else ROLLOUT_CUTS
            if ("delayed" in cut and not delayed) or (cls.offline and cut in ONLINE_CUTS) or cut in others:
                continue
            quick = cheap or "delayed" in cut or cut in ("mid-episode", "at an episode's end", "during an evaluation")
            own = "during an evaluation" if cls.offline else "mid-episode"
            first = (cut == own and family == "classic" and algo in ONE_OF_A_KIND) or (algo in ALL_CUTS and cheap)
            first = first or (algo, cut) == FAMILIES or (algo == "ppo" and cut in ROLLOUT_CUTS and cheap)
            yield pytest.param(algo, family, cut, marks=() if first else SWEEP if quick else pytest.mark.slow)


@pytest.mark.parametrize(("algo", "family", "cut"), list(matrix()))
def test_cut_and_resumed_equals_uncut(forks, whole_run, algo: str, family: str, cut: str, tmp_path: Path) -> None:
    expected = whole_run(algo, family)
    how, as_meant = CUTS[cut]
    where = forks.cut(make_config(algo, family), tmp_path, **how)
    assert as_meant(where), where
    assert compare_runs(expected, forks.resume(tmp_path)) == []


@pytest.mark.parametrize("algo", one_of_a_kind("tqc"))
def test_cut_and_resumed_again_and_again(forks, whole_run, algo: str, tmp_path: Path) -> None:
    forks.cut(make_config(algo), tmp_path, at="step", n=13)
    forks.cut_again(tmp_path, at="save", n=8)
    forks.cut_again(tmp_path, at="evaluation", n=3)
    stood = forks.cut_again(tmp_path, at="step", n=71, save=True)
    where = forks.cut_again(tmp_path, at="step", n=72)
    assert 0 < where["step"] - stood["step"] <= 2  # the resumed run was killed at its first step
    assert compare_runs(whole_run(algo), forks.resume(tmp_path)) == []


@pytest.mark.parametrize(
    "algo", one_of_a_kind("c51_dqn", "ppo", among=ONLINE)
)  # offline, every step is an update
def test_resume_between_two_updates_writes_the_same_rows(forks, algo: str, tmp_path: Path) -> None:
    """What a row says must not depend on whether this process has made an update yet."""
    config = make_config(algo, wanted={"train_frequency": 50, "rollout_steps": 25})
    expected = forks.train(config, tmp_path / "whole")
    where = forks.cut(config, tmp_path / "cut", at="step", n=81, save=True)
    once = {"ppo": 24, "pqn": 24}.get(algo, 1)  # two epochs of twelve minibatches
    # A row is due at 85, the next updates at 127, or at 100 on the second rollout.
    assert where["updates"] == once and where["step"] < 85
    assert compare_runs(expected, forks.resume(tmp_path / "cut")) == []


# The comparison is the same for all: one entry for each kind of actions shows that it sees.
WITNESSES = [*{("discrete" in learner_class(algo).actions): algo for algo in reversed(ONLINE)}.values(), *OFFLINE[:1]]
WITNESSES += ["ppo"]
# One piece of state forgotten on resume: the comparison must notice each, or it proves nothing.
FORGOTTEN: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, ""),
    "the update's phase": ({"state": {"clock.since_training": 0}}, "learner.safetensors:params."),
    "the schedule's end": ({"state": {"clock.horizon": 117}}, "learner.safetensors:params."),
    "an episode": ({"state": {"environments.episodes": [9, 9, 9, 9]}}, "envs.safetensors:obs"),
    "the best return": ({"state": {"session.best": [1e9, 1e9]}}, "state.session.best"),
    "the newest evaluation": ({"state": {"session.last_evaluation_step": 0, "session.last_evaluation": []}}, ""),
    "the rows": ({"state": {"session.offsets": {"metrics": 0, "evaluations": 0}}}, "metrics.jsonl"),
    "a moment of Adam": ({"zero": "adam_square."}, "learner.safetensors:params."),
    "Adam's step": ({"zero": "beta_powers"}, "learner.safetensors:params."),
    "the updates": ({"zero": "update_count"}, "learner.safetensors:params."),
    "the metrics' mean": ({"zero": "metric_sum."}, "metrics.jsonl"),
    "the replay's or rollout's rewards": ({"zero": "rewards"}, "learner.safetensors:params."),
    "the rollout": ({"state": {"rollout.filled": 0}}, "learner.safetensors:params."),
}
LACKING = {  # an offline run has no environments, an on-policy one no replay, others no rollout
    "bc": ("the update's phase", "an episode", "the replay's or rollout's rewards", "the rollout"),
    "sac": ("the rollout",),
    "dqn": ("the rollout",),
    "ppo": ("the update's phase",),
}


def forgotten() -> Iterator[Any]:
    """Every witness with everything it has; the default run has one with all, and of the others a part."""
    for algo in WITNESSES:
        for what in FORGOTTEN:
            if what not in LACKING[algo]:
                quick = algo == "sac" or (algo == "ppo" and "rollout" in what) or (algo == "bc" and "Adam" in what)
                yield pytest.param(algo, what, marks=() if quick else SWEEP)


@pytest.mark.parametrize(("algo", "what"), list(forgotten()))
def test_what_a_resume_forgets_is_noticed(forks, whole_run, cut_mid_way, algo: str, what: str, tmp_path: Path) -> None:
    control, where = FORGOTTEN[what]
    shutil.copytree(cut_mid_way(algo), tmp_path, dirs_exist_ok=True)
    differences = compare_runs(whole_run(algo), forks.resume(tmp_path, control))
    if what in ("nothing", "the newest evaluation"):  # the latter is remade: the run ends with another
        assert differences == []
    else:
        assert any(line.startswith(where) for line in differences), differences


@pytest.mark.parametrize("algo", one_of_a_kind("dqn"))
def test_a_target_update_forgotten_by_resume_shows(forks, whole_run, cut_mid_way, algo: str, tmp_path: Path) -> None:
    if not hasattr(learner_class(algo).settings_type, "target_update_interval"):
        pytest.skip("its targets move at every update")
    shutil.copytree(cut_mid_way(algo), tmp_path, dirs_exist_ok=True)
    differences = compare_runs(whole_run(algo), forks.resume(tmp_path, {"zero": "last_step"}))
    assert any(line.startswith("learner.safetensors:params.") for line in differences)


@pytest.fixture(scope="module")
def cut_mid_way(forks: Forks, tmp_path_factory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def run(algo: str) -> Path:
        if algo not in made:
            made[algo] = tmp_path_factory.mktemp("cut")
            at = "step" if learner_class(algo).offline else "mid_episode"
            # With updates since the row at 51: PPO's are at 60.
            where = forks.cut(make_config(algo), made[algo], at=at, n=63 if algo == "ppo" else 57, save=True)
            assert where["step"] < 69 and where["updates"] > 0  # before the next checkpoint is due
        return made[algo]

    return run


def test_resume_from_an_older_checkpoint(forks, whole_run, cut_mid_way, tmp_path: Path) -> None:
    """Killed before it catches up, the run must not be left between newer checkpoints and shorter logs."""
    algo = "sac"
    shutil.copytree(cut_mid_way(algo), tmp_path, dirs_exist_ok=True)
    run_dir = run_dir_in(tmp_path)
    # A kill may come before the oldest of three is removed, or leave a directory half removed.
    *_, older, newer = sorted((run_dir / "checkpoints").glob("step_*"))
    assert older.name.endswith("046") and newer.name > older.name
    assert forks.run(["resume", str(older), "--quiet"], tmp_path, {"at": "step", "n": 51}) == -9
    assert read_json(tmp_path / "cut.json")["step"] == 52
    assert compare_runs(whole_run(algo), forks.resume(tmp_path)) == []


@pytest.mark.parametrize("algo", one_of_a_kind("sac", "bc", among=WITNESSES))
def test_resume_in_another_directory(forks, whole_run, cut_mid_way, algo: str, tmp_path: Path) -> None:
    source = run_dir_in(cut_mid_way(algo))
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file() and path.name != ".lock"}
    words = ["resume", str(source), "--quiet", "--output-dir", "runs"]
    assert forks.run(words, tmp_path, {"at": "step", "n": 65}) == -9  # before its first checkpoint there
    assert compare_runs(whole_run(algo), forks.resume(tmp_path)) == []
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("algo", one_of_a_kind("rainbow_dqn"))
def test_resume_of_a_process_killed_from_outside(whole_run, algo: str, tmp_path: Path) -> None:
    """Without forks: `rl-training train`, SIGKILL when rows appear, and the Python API to go on."""
    for number in range(5):  # a short run may have ended before the signal reached it on a busy machine
        home = tmp_path / str(number)
        home.mkdir()
        write_config(make_config(algo), home)
        process = start_program(["train", "--config", "config.yaml"], home, home / "log.txt")
        run_dir = home / "runs" / whole_run(algo).name
        try:
            wait_for(run_dir / "metrics.jsonl", process)
        finally:
            process.kill()
        if process.wait() == -9 and read_json(run_dir / "run.json")["status"] == "running":
            break
    else:
        pytest.fail("it was never killed in the middle of its run")
    resume_training(run_dir, show_progress=False)
    assert compare_runs(whole_run(algo), run_dir) == []


@pytest.mark.slow
@pytest.mark.parametrize("algo", algorithm_names())
def test_resume_after_every_call_of_every_save(forks, whole_run, algo: str, tmp_path: Path) -> None:
    """Killed before each sync, rename and removal of the first saves, with the rotation among them."""
    for number in range(1, 60):
        where = forks.cut(make_config(algo), tmp_path / str(number), at="save", n=number)
        assert compare_runs(whole_run(algo), forks.resume(tmp_path / str(number))) == [], where


@pytest.mark.slow
@pytest.mark.parametrize("algo", algorithm_names())
@pytest.mark.parametrize(
    "changes", [{"compile": "on"}, {"workers": 2}, {"tensorboard": False, "seeds": (), "num_envs": 1}]
)
def test_resume_compiled_in_workers_or_alone(forks, algo: str, changes: dict[str, Any], tmp_path: Path) -> None:
    config = make_config(algo, **changes)
    expected = forks.train(config, tmp_path / "whole")
    forks.cut(config, tmp_path / "cut", at="step", n=61, save=True)
    assert compare_runs(expected, forks.resume(tmp_path / "cut")) == []
