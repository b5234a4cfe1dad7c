"""Studies whose runs are stand-in programs: what is started, resumed, listed and kept, and where."""

from __future__ import annotations

import io
import os
import shlex
import stat
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harness import ROOT

from rl_training.config.yaml_loading import dump_yaml, load_yaml
from rl_training.core.checks import UserError
from rl_training.studies import process
from rl_training.studies.choose_launcher import LaunchOptions
from rl_training.studies.display import StudyDisplay
from rl_training.studies.estimate import dry_run
from rl_training.studies.scheduler import MAX_STUCK, Outcome
from rl_training.studies.slots import local_slots
from rl_training.studies.study_file import Resources
from rl_training.studies.sweep import Plan, failure_lines, finish_study, plan_lines, plan_sweep, run_sweep
from rl_training.studies.trials import Trials
from rl_training.studies.tune import Tuning, load_tuning, result_lines, run_tuning, write_best

STUDY: dict[str, Any] = {
    "algorithms": ["dqn"],
    "environments": ["CartPole-v1"],
    "seeds": [0, 1],
    "config": {"total_timesteps": 300, "report": False},
    "overrides": [{"grid": {"gamma": [0.9, 0.95, 0.99]}}],
}
TUNE: dict[str, Any] = {
    "algo": "dqn",
    "env_id": "CartPole-v1",
    "trials": 8,
    "seeds": [0, 1],
    "config": {"total_timesteps": 300, "eval_interval": 100},
    "search": {"gamma": {"low": 0.5, "high": 0.999}, "hidden_sizes": [[8], [8, 8]]},
    "startup_trials": 3,
    "pruning": {"startup_trials": 2},
}
JOBS = LaunchOptions(jobs=2)


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "PROGRAM", (sys.executable, str(ROOT / "tests" / "stand_in_program.py")))
    monkeypatch.chdir(tmp_path)


def planned(**changes: Any) -> Plan:
    Path("study.yaml").write_text(dump_yaml({**STUDY, **changes}))
    return plan_sweep("study.yaml")


def swept(options: LaunchOptions = JOBS, **changes: Any) -> tuple[Plan, Outcome]:
    plan = planned(**changes)
    return plan, run_sweep(plan, options, show_progress=False)


def starts(plan: Plan) -> list[list[str]]:
    path = plan.folder.path / "starts.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def variants(**tags: str) -> list[dict[str, Any]]:
    """Runs with gamma 0.9 …, each with the tags of its number: `_1="fail"`."""
    found = [{"gamma": 0.9 + index / 100, "tags": []} for index in range(3)]
    for number, tag in tags.items():
        found[int(number[1:])]["tags"] = [tag]
    return [{"list": found}]


def test_a_sweep_runs_every_part_once(capsys: pytest.CaptureFixture[str]) -> None:
    plan, outcome = swept()
    assert sorted(outcome.finished) == sorted(run.name for run in plan.runs) and not outcome.failed
    assert Counter(words[0] for words in starts(plan)) == {"train": 3}
    assert {words[2] for words in starts(plan)} == {"1"}, "the cores of each run"
    assert "2 at a time, limited by jobs" in capsys.readouterr().err
    again = run_sweep(plan, JOBS, show_progress=False)
    assert not again.finished and not again.failed and len(starts(plan)) == 3, "finished runs are not run again"
    runs = finish_study(plan.folder.path)
    assert [path.name for path in runs] == [run.name for run in plan.runs]
    table = capsys.readouterr().out
    assert table.count("finished") == 3 and "99.5 +- 0.5" in table, "the mean of 99 and 100"


def test_a_failure_is_listed_and_the_rest_finishes() -> None:
    plan, outcome = swept(overrides=variants(_1="fail"))
    assert len(outcome.finished) == 2 and list(outcome.failed) == [plan.runs[1].name]
    (line,) = failure_lines(plan, outcome)
    assert line.startswith("dqn CartPole-v1 gamma=0.91") and "the environment failed: on purpose" in line
    assert "a notice" not in line, "the last line of the log alone"


@pytest.mark.parametrize(
    ("tag", "note"), [("failed-seed", "failed seeds: 1"), ("diverge", "loss became NaN or infinite at update 2")]
)
def test_seeds_that_failed_are_listed_again_and_not_run_again(tag: str, note: str) -> None:
    plan, outcome = swept(overrides=variants(_0=tag))
    assert outcome.failed == {plan.runs[0].name: note}
    again = run_sweep(plan, JOBS, show_progress=False)
    assert again.failed == outcome.failed and len(starts(plan)) == 3


def test_a_killed_run_is_resumed_until_it_makes_no_progress() -> None:
    plan, outcome = swept(overrides=variants(_0="die-once"))
    assert len(outcome.finished) == 3
    assert [words[0] for words in starts(plan) if words[1] == plan.runs[0].name] == ["train", "resume"]
    plan, outcome = swept(overrides=variants(_2="die-always"), name="again")
    assert len(outcome.finished) == 2 and "killed by SIGKILL, 3 times" in outcome.failed[plan.runs[2].name]
    assert len([words for words in starts(plan) if words[1] == plan.runs[2].name]) == MAX_STUCK + 1


def test_what_a_kill_left_before_there_was_a_run_is_started_anew() -> None:
    plan = planned()
    left = plan.folder.run_dir(plan.runs[0].name)
    left.mkdir(parents=True)
    (left / ".lock").touch()
    outcome = run_sweep(plan, JOBS, show_progress=False)
    assert len(outcome.finished) == 3 and not list(left.parent.glob("*-2"))


def test_a_run_that_another_process_trains_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned(overrides=[{"list": [{"gamma": 0.9, "tags": ["slow"]}]}])
    plan.folder.write(plan.runs, None)
    orphan = process.start_planned(plan.folder, plan.runs[0].name)
    assert orphan is not None and process.in_use(plan.folder, plan.runs[0].name)
    with pytest.raises(process.RunInUse):
        process.start_planned(plan.folder, plan.runs[0].name)
    outcome = run_sweep(plan, JOBS, show_progress=False)
    assert outcome.finished == [plan.runs[0].name] and len(starts(plan)) == 1
    assert orphan.wait() == 0


def test_a_changed_study_keeps_what_is_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    before, _ = swept()
    after = planned(overrides=[{"grid": {"gamma": [0.99, 0.999]}}])
    lines = "\n".join(plan_lines(after, "here"))
    assert "2 runs (1 finished, 1 new)" in lines and "kept  2 runs that are not in the study any more" in lines
    outcome = run_sweep(after, JOBS, show_progress=False)
    assert len(outcome.finished) == 1 and len(starts(before)) == 4
    assert all(before.folder.run_dir(run.name).is_dir() for run in before.runs)


def test_a_full_disk_is_one_line_and_starts_nothing_more() -> None:
    plan, outcome = swept(LaunchOptions(jobs=1), overrides=variants(_0="full-disk"))
    assert outcome.full_disk and len(starts(plan)) == 1
    (line,) = failure_lines(plan, outcome)
    assert line.startswith(f"{plan.folder.path}: No space left on device; 3 runs are not finished")
    config = plan.folder.config(plan.runs[0].name)
    config.write_text(config.read_text().replace("full-disk", "ok"))
    run_yaml = plan.folder.run_dir(plan.runs[0].name) / "config.yaml"
    run_yaml.write_text(run_yaml.read_text().replace("full-disk", "ok"))
    again = run_sweep(plan, JOBS, show_progress=False)
    assert len(again.finished) == 3


def test_one_sweep_at_a_time() -> None:
    from rl_training.files.run_directory import RunLock

    plan = planned()
    plan.folder.path.mkdir(parents=True)
    with RunLock(plan.folder.path), pytest.raises(UserError, match="in use by process"):
        run_sweep(plan, JOBS, show_progress=False)


def test_a_dry_run_estimates_time_and_disk_and_writes_nothing() -> None:
    swept(overrides=[{"grid": {"gamma": [0.9]}}])
    plan = planned(overrides=[{"grid": {"gamma": [0.9, 0.95, 0.99]}}])
    before = sorted(plan.folder.path.rglob("*"))
    found = dry_run(plan, LaunchOptions(jobs=2))
    assert found["runs"] == 2 and found["at_once"] == 2
    assert found["seconds"] == pytest.approx(2 * (300 / 300.0) / 2), "300 steps in one second each, two at a time"
    assert found["disk_bytes"] == sum(plan.needs[run.name].disk for run in plan.runs[1:])
    text = "\n".join(found["lines"])
    assert "3 runs (1 finished, 2 new)" in text and "time  about 0:01" in text and "disk  up to" in text
    assert sorted(plan.folder.path.rglob("*")) == before


def test_runs_at_a_time_are_limited_by_cores_memory_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, slots = planned(), "rl_training.studies.slots"
    found = {}
    for name, cores, memory, gpus in (("cores", 2, 64, 0), ("memory", 64, 4, 0), ("GPU", 64, 64, 1)):
        monkeypatch.setattr(f"{slots}.cores", lambda cores=cores: cores)
        monkeypatch.setattr(f"{slots}.free_memory", lambda memory=memory: memory * 2**30)
        monkeypatch.setattr(f"{slots}.torch.cuda.device_count", lambda gpus=gpus: gpus)
        resources = Resources(memory=2.0, gpus=0.5 if gpus else None)
        found[name] = local_slots(resources, plan.runs, plan.needs)
        assert name in found[name].reason
    assert [found[name].count for name in ("cores", "memory", "GPU")] == [2, 1, 2]
    shared = found["GPU"]
    assert [shared.environment(slot)["CUDA_VISIBLE_DEVICES"] for slot in range(2)] == ["0", "0"]
    assert "CUDA_VISIBLE_DEVICES" not in found["cores"].environment(0)


def test_all_runs_are_on_one_live_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    plan, stream = planned(), Terminal()
    labels = {run.name: run.label for run in plan.runs}
    display = StudyDisplay(plan.folder, labels, dict.fromkeys(labels, 300), stream=stream)
    names = list(labels)
    display.started(names[0], plan.folder.state(names[0]))
    display.update(names[:2], 1)
    display.failed(names[1], "a reason")
    display.close()
    text = stream.getvalue()
    assert "0/3 runs, 2 running, 1 waiting" in text and f"failed   {labels[names[1]]}: a reason" in text
    assert all(labels[name] in text for name in names[:2])


# --- Ray and Slurm ---------------------------------------------------------------------------------------------------
def test_ray_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"Ray is not installed: pip install 'rl-training\[ray\]'"):
        swept(LaunchOptions("ray"))


def test_ray_is_unreachable() -> None:
    pytest.importorskip("ray")
    with pytest.raises(UserError, match=r"Ray at 127.0.0.1:1 cannot be reached \(Connection refused\)"):
        swept(LaunchOptions("ray", address="127.0.0.1:1"))


def test_slurm_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="Slurm is not available here: there is no sbatch"):
        swept(LaunchOptions("slurm"))


# A stand-in for sbatch: runs the tasks of the array, the first one twice, as after a preemption.
SBATCH = """
import os, pathlib, re, shutil, subprocess, sys, time
script = sys.argv[-1]
shutil.copy(script, "submitted.sbatch")
count = int(re.search(r"--array=0-([0-9]+)", pathlib.Path(script).read_text())[1]) + 1
queue = {f"42_{i}" for i in range(count)}
pathlib.Path("queue").write_text("\\n".join(queue))
print(42, flush=True)
if os.fork():
    os._exit(0)
log = open("slurm.log", "ab")
os.setsid(); os.dup2(log.fileno(), 1); os.dup2(log.fileno(), 2)
for i in range(count):
    words = {"env": {**os.environ, "SLURM_ARRAY_TASK_ID": str(i), "SLURM_CPUS_PER_TASK": "1"}}
    if i == 0:
        job = subprocess.Popen(["bash", script], **words)
        while job.poll() is None and not pathlib.Path("studies/study/starts.txt").exists():
            time.sleep(0.02)
        job.terminate()
        job.wait()
    subprocess.run(["bash", script], **words)
    queue.discard(f"42_{i}")
    pathlib.Path("queue.new").write_text("\\n".join(queue)); os.rename("queue.new", "queue")
"""


def test_slurm_runs_an_array_from_the_template(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each job runs `slurm_job`, which starts the stand-in; a job that is stopped and queued again resumes."""
    tools, job = tmp_path / "bin", tmp_path / "job.py"
    tools.mkdir()
    job.write_text(
        f"import rl_training.studies.process as p, sys\np.PROGRAM = {process.PROGRAM!r}\n"
        "from rl_training.studies.slurm_job import main\nsys.exit(main(*sys.argv[3:]))\n"
    )
    sbatch = tmp_path / "sbatch.py"
    sbatch.write_text(SBATCH)
    commands = {"squeue": "cat queue", "scancel": ""}
    for name, program in {"sbatch": sbatch, "python": job}.items():
        commands[name] = f'exec {shlex.join([sys.executable, str(program)])} "$@"'
    for name, command in commands.items():
        (tools / name).write_text(f"#!/bin/bash\n{command}\n")
        (tools / name).chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("RL_TRAINING_SLURM_SECONDS", "0.2")
    monkeypatch.setattr("rl_training.studies.slurm_launcher.PYTHON", str(tools / "python"))
    overrides = [{"list": [{"gamma": 0.9, "tags": ["slow"]}, {"gamma": 0.95}]}]
    config = {"total_timesteps": 2000, "report": False}
    options = LaunchOptions("slurm", jobs=2, sbatch=("--partition=long",))
    plan, outcome = swept(options, overrides=overrides, config=config)
    script = Path("submitted.sbatch").read_text()
    for line in ("--array=0-1%2", "--requeue", "--cpus-per-task=1", "--partition=long", "--signal=B:USR1@120"):
        assert f"#SBATCH {line}" in script
    assert sorted(outcome.finished) == sorted(run.name for run in plan.runs), Path("slurm.log").read_text()
    assert [words[0] for words in starts(plan)] == ["train", "resume", "train"] and not outcome.failed
    steps = [path.name for path in (plan.folder.run_dir(plan.runs[0].name) / "checkpoints").iterdir()]
    assert len(steps) == 20, "stopped in the middle and resumed, no step twice"


# --- tune ------------------------------------------------------------------------------------------------------------
def tuned(jobs: int = 1, **changes: Any) -> tuple[Tuning, Trials, Outcome]:
    pytest.importorskip("optuna")
    Path("tune.yaml").write_text(dump_yaml({**TUNE, **changes}))
    tuning = load_tuning("tune.yaml")
    outcome, trials = run_tuning(tuning, LaunchOptions(jobs=jobs), show_progress=False)
    return tuning, trials, outcome


def test_a_study_is_tuned_and_its_best_config_written() -> None:
    tuning, trials, outcome = tuned()
    states = Counter(one.state.name for one in trials.all())
    assert states["COMPLETE"] >= 3 and sum(states.values()) == 8 and not outcome.failed
    best = max((one for one in trials.all() if one.state.name == "COMPLETE"), key=lambda one: one.value)
    assert best.value == pytest.approx(100 * best.params["gamma"] + 0.5), "the mean of both seeds"
    write_best(tuning, trials, "best.yaml")
    config = load_yaml("best.yaml").values
    assert config["algo_kwargs"]["gamma"] == best.params["gamma"] and isinstance(
        config["algo_kwargs"]["hidden_sizes"], list
    )
    assert not {"seeds", "run_name", "output_dir"} & config.keys()
    assert (tuning.folder.path / "trials.csv").read_text().count("\n") == 9
    assert f"{best.value:.4g}" in "\n".join(result_lines(tuning, trials))
    for one in trials.all():
        if one.state.name == "PRUNED":
            others = [other.intermediate_values[100] for other in trials.all()[: one.number]]
            assert one.intermediate_values[100] < max(others)


@pytest.mark.sweep
def test_trials_are_the_same_wherever_a_study_was_interrupted() -> None:
    whole = [(one.params, one.value, one.state) for one in tuned(name="whole")[1].all()]
    tuning, trials, _ = tuned(name="cut", trials=3)
    trials.values(trials.next())  # as if the study had been killed when it was about to start its fourth trial
    with (tuning.folder.path / "journal.log").open("ab") as file:
        file.write(b'{"op_code": 4, "worker')  # and in the middle of a line
    found = tuned(name="cut")[1]
    assert [(one.params, one.value, one.state) for one in found.all()] == whole


def test_a_changed_study_is_not_continued() -> None:
    tuned(trials=2)
    with pytest.raises(UserError, match="have changed since its first trial"):
        tuned(trials=2, seeds=[0, 1, 2])


@pytest.mark.parametrize("tag", ["failed-seed", "diverge"])
def test_a_diverged_trial_is_pruned(tag: str) -> None:
    """Whether some of its seeds diverged or all: it is a result, not a failure of the study."""
    _, trials, outcome = tuned(trials=2, config={**TUNE["config"], "tags": [tag]})
    assert {one.state.name for one in trials.all()} == {"PRUNED"} and not outcome.failed
    assert all("failed seeds" in one.user_attrs["reason"] or "NaN" in one.user_attrs["reason"] for one in trials.all())


def test_a_trial_whose_settings_contradict_each_other_is_pruned_and_never_started() -> None:
    search = {"batch_size": [512], "rollout_steps": [32, 256]}  # 8 environments
    tuning, trials, outcome = tuned(trials=6, algo="ppo", search=search, sampler="random")
    small = {one.number for one in trials.all() if one.params["rollout_steps"] == 32}
    assert 0 < len(small) < 6 and not outcome.failed
    reasons = {one.number: one.user_attrs.get("reason", "") for one in trials.all() if one.state.name == "PRUNED"}
    assert {number for number, reason in reasons.items() if "batch_size must be at most" in reason} == small
    assert not any(tuning.folder.run_dir(f"trial-{number:04d}").exists() for number in small)


def test_the_penalty_for_spread() -> None:
    _, trials, _ = tuned(trials=1, objective={"spread_penalty": 2.0})
    (one,) = trials.all()
    assert one.value == pytest.approx(100 * one.params["gamma"] + 0.5 - 2 * 0.5)
