"""The report of a run shows all of its data: online, offline, stopped, failed, killed or running."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import make_quick_config
from test_report import make_run, report_of, tiles, write_rows

from rl_training.cli.main import main
from rl_training.core.signals import Stopped, interruptible
from rl_training.report.charts import format_number
from rl_training.run.callbacks import Callback
from rl_training.run.run import train
from rl_training.run.session import TrainingFailure

DATASET = {
    "kind": "file",
    "source": "/data/<hopper>.npz",
    "sha256": "ab" * 32,
    "transitions": 5000,
    "trajectories": 10,
    "returns": {"mean": 120.5, "std": 30.25, "median": 110.0, "min": 80.0, "max": 200.0},
    "offline_steps": None,
}


def charts(page: str) -> list[str]:
    return [part.split("</b>")[0] for part in page.split("<figcaption><b>")[1:]]


def rows_of(names: dict[str, Any], steps: range) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "seed": 0,
            **{name: value(step) for name, value in names.items()},
            "time/time_elapsed": step / 50,
        }
        for step in steps
    ]


# --- rows ------------------------------------------------------------------------------------------------------------
def test_report_merges_training_and_evaluation_rows_of_one_step(tmp_path: Path) -> None:
    make_run(tmp_path, [0])
    rows = [{"step": 1000, "seed": 0, "rollout/ep_rew_mean": 70.0, "train/loss": 2.0, "time/time_elapsed": 20.0}]
    rows.append({"step": 1000, "seed": 0, "eval/mean_reward": 110.0})
    write_rows(tmp_path / "metrics.jsonl", rows)
    page = report_of(tmp_path)
    assert "step 1,000\nTraining return: 70" in page and "step 1,000\nLoss: 2" in page
    assert tiles(page)["Wall time"] == "20.0 s | 50 steps/s"
    write_rows(tmp_path / "metrics.jsonl", [*rows, {**rows[0], "train/loss": 5.0}])  # written again
    assert "step 1,000\nLoss: 5" in report_of(tmp_path)


def test_report_of_a_real_run_shows_its_last_training_row(tmp_path: Path) -> None:
    """Its only rows are those of steps at which it is evaluated too."""
    config = make_quick_config("dqn", tmp_path, report=True, log_interval=60, eval_interval=60)
    run_dir = train(config, show_progress=False).run_dir
    page = (run_dir / "report.html").read_text()
    last = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-2])
    assert last["step"] == 120 and "No data yet" not in page
    assert f"step 120\nTraining return: {format_number(last['rollout/ep_rew_mean'])}" in page
    seconds = json.loads((run_dir / "run.json").read_text())["elapsed"]
    assert seconds >= last["time/time_elapsed"] > 0
    assert tiles(page)["Wall time"].startswith(f"{seconds:.1f} s | {round(120 / seconds):,} steps/s")


# --- charts ----------------------------------------------------------------------------------------------------------
def test_report_leaves_out_charts_that_tell_nothing(tmp_path: Path) -> None:
    make_run(tmp_path, [0])
    names: dict[str, Any] = {
        "rollout/exploration_rate": lambda step: 1.0,
        "train/learning_rate": lambda step: 3e-4,
        "train/n_updates": lambda step: step,
        "train/ent_coef": lambda step: 0.2,
        "train/critic_loss": lambda step: 1 / step,
        "train/never": lambda step: None,
    }
    write_rows(tmp_path / "metrics.jsonl", rows_of(names, range(100, 600, 100)))
    page = report_of(tmp_path)
    assert charts(page) == ["Evaluation return", "Training return", "Distribution of returns", "Critic loss"]
    assert "Constant throughout: Ent coef 0.2000<" in page
    moving = {**names, "rollout/exploration_rate": lambda step: 1 / step, "train/learning_rate": lambda step: -step}
    write_rows(tmp_path / "metrics.jsonl", rows_of(moving, range(100, 600, 100)))
    assert charts(report_of(tmp_path))[3:] == ["Exploration rate", "Learning rate", "Critic loss"]


# --- offline ---------------------------------------------------------------------------------------------------------
def test_report_of_an_offline_run_counts_updates_and_shows_its_data(tmp_path: Path) -> None:
    make_run(tmp_path, [0, 1, 2, 3], dataset=DATASET)
    names: dict[str, Any] = {"rollout/ep_rew_mean": lambda step: None, "train/actor_loss": lambda step: float(step)}
    rows = rows_of(names, range(100, 1100, 100))
    write_rows(tmp_path / "metrics.jsonl", [{**row, "seed": seed} for row in rows for seed in range(4)])
    page = report_of(tmp_path)
    shown = tiles(page)
    assert shown["Updates"] == "1,000 | per seed" and shown["Wall time"] == "20.0 s | 200 updates/s, all seeds together"
    assert not {"Environment steps", "Gradient steps"} & set(shown)
    assert charts(page) == ["Evaluation return", "Distribution of returns", "Actor loss"] and "No data yet" not in page
    assert "environment steps" not in page and "update 1,000\nreturn: " in page
    assert "<th>Updates</th>" in page and "<th>Training return</th>" not in page
    for fact in ("5,000 in 10 trajectories", "120.5 ± 30.2, from 80.0 to 200.0", "ab" * 32, "/data/&lt;hopper&gt;.npz"):
        assert f"<code>{fact}</code>" in page


def test_report_of_an_offline_run_without_an_environment_has_no_empty_parts(tmp_path: Path) -> None:
    make_run(tmp_path, [0], dataset={**DATASET, "returns": None})
    (tmp_path / "evaluations.jsonl").unlink()
    write_rows(tmp_path / "metrics.jsonl", rows_of({"train/loss": float}, range(100, 300, 100)))
    page = report_of(tmp_path)
    assert charts(page) == ["Loss"] and "<h2>Returns</h2>" not in page and "<th>Returns</th>" not in page
    assert set(tiles(page)) == {"Updates", "Wall time"}


def test_report_of_an_offline_to_online_run_shows_both(tmp_path: Path) -> None:
    page = report_of(make_run(tmp_path, [0], dataset={**DATASET, "offline_steps": 400}))
    shown = tiles(page)
    assert shown["Offline updates"] == "400 | " and shown["Environment steps"] == "600 | "
    assert "Dataset" in page and "Training return" in charts(page)
    assert "updates, then environment steps" in page


@pytest.mark.parametrize("broken", [{"transitions": "x"}, {"returns": 3}, {"returns": {"mean": 1.0}}, {}])
def test_report_of_an_older_or_broken_record_of_the_data(tmp_path: Path, broken: dict[str, Any]) -> None:
    page = report_of(make_run(tmp_path, [0], dataset={"sha256": "12" * 32, **broken}))
    assert "12" * 32 in page


def test_a_run_without_data_reports_its_recipe_at_the_start_and_in_the_report(tmp_path: Path, capsys: Any) -> None:
    config = make_quick_config("iql", tmp_path, {"dataset_seed": 3}, report=True, eval_episodes=0, total_timesteps=40)
    run_dir = train(config, show_progress=False).run_dir
    recipe = "64 steps of random actions in Pendulum-v1, dataset_seed 3"
    assert f"no dataset is given (dataset_path), so one was generated: {recipe}" in capsys.readouterr().err
    data = json.loads((run_dir / "run.json").read_text())["dataset"]
    assert (data["kind"], data["source"], data["transitions"], data["trajectories"]) == ("random", recipe, 64, 2)
    assert data["returns"]["min"] <= data["returns"]["mean"] <= data["returns"]["max"] < 0
    page = (run_dir / "report.html").read_text()
    assert f"<th>Recipe</th><td><code>{recipe}</code>" in page and data["sha256"] in page
    assert tiles(page)["Updates"].startswith("40")


# --- seeds -----------------------------------------------------------------------------------------------------------
def test_report_of_fewer_than_four_seeds_shows_a_mean(tmp_path: Path) -> None:
    page = report_of(make_run(tmp_path, [0, 1, 2]))
    assert tiles(page)["Final evaluation"] == "111.0 ± 0.8 | mean and spread over 3 seeds"
    assert "interquartile" not in page and "interval" not in page


# --- runs that did not finish ----------------------------------------------------------------------------------------
class At(Callback):
    def __init__(self, step: int, action: Any) -> None:
        self.step, self.action = step, action

    def on_step(self, session: Any) -> bool | None:
        return self.action(session) if session.step == self.step else None


def fail(session: Any) -> None:
    raise TrainingFailure("a <bad> day")


def test_a_run_that_a_callback_stops_gets_a_report(tmp_path: Path) -> None:
    config = make_quick_config("dqn", tmp_path, report=True)
    result = train(config, callbacks=[At(70, lambda session: False)], show_progress=False)
    page = (result.run_dir / "report.html").read_text()
    assert ">Stopped</span>" in page and tiles(page)["Environment steps"].startswith("70")
    assert tiles(page)["Last evaluation"].endswith("at step 60")


def test_a_run_that_a_signal_stops_gets_a_report(tmp_path: Path) -> None:
    config = make_quick_config("dqn", tmp_path, report=True)
    with pytest.raises(Stopped) as stopped:
        train(config, callbacks=[At(50, lambda session: os.kill(os.getpid(), signal.SIGTERM))], show_progress=False)
    assert ">Stopped</span>" in (stopped.value.result.run_dir / "report.html").read_text()


def stop_half_way(session: Any) -> None:
    with interruptible():  # as while kernels compile
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_run_that_a_signal_stops_half_way_gets_a_report(tmp_path: Path) -> None:
    """Nothing new is saved then: the report shows what was logged."""
    with pytest.raises(Stopped):
        train(make_quick_config("dqn", tmp_path, report=True), callbacks=[At(70, stop_half_way)], show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    page = (run_dir / "report.html").read_text()
    assert ">Stopped</span>" in page and tiles(page)["Environment steps"].startswith("60")


def test_report_of_a_run_cut_after_a_resume_shows_no_values_of_its_earlier_end(tmp_path: Path) -> None:
    page = report_of(make_run(tmp_path, [0], status="stopped", elapsed=None, metrics={"global_step": 300}))
    assert tiles(page)["Environment steps"] == "1,000 | " and tiles(page)["Wall time"] == "2.0 s | 500 steps/s"


def test_a_run_whose_callback_raises_gets_a_report(tmp_path: Path) -> None:
    config = make_quick_config("dqn", tmp_path, report=True)
    with pytest.raises(ZeroDivisionError):
        train(config, callbacks=[At(50, lambda session: 1 // 0)], show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert "ZeroDivisionError: integer division" in (run_dir / "report.html").read_text()


@pytest.mark.parametrize("wanted", [True, False])
def test_a_failed_run_gets_a_report_that_names_the_failure(tmp_path: Path, wanted: bool) -> None:
    config = make_quick_config("dqn", tmp_path, report=wanted)
    with pytest.raises(TrainingFailure):
        train(config, callbacks=[At(50, fail)], show_progress=False)
    (run_dir,) = tmp_path.iterdir()
    assert (run_dir / "report.html").exists() == wanted
    if wanted:
        page = (run_dir / "report.html").read_text()
        assert ">Failed</span>" in page and "<b>The run failed.</b> a &lt;bad&gt; day" in page


def test_report_tells_a_running_run_from_a_killed_one(tmp_path: Path) -> None:
    make_run(tmp_path, [0], status="running", ended=None)  # metrics are those of an earlier end
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        page = report_of(tmp_path)
        assert ">Running</span>" in page and "4,321" not in page
    assert ">Interrupted</span>" in report_of(tmp_path)


# --- the command -----------------------------------------------------------------------------------------------------
def test_report_command_writes_the_report_of_any_run(tmp_path: Path, capsys: Any) -> None:
    (run_dir := tmp_path / "run").mkdir()
    make_run(run_dir, [0], status="stopped")
    assert main(["report", str(run_dir)]) == 0
    assert capsys.readouterr().out == f"report {run_dir / 'report.html'}\n" and (run_dir / "report.html").exists()
    other = tmp_path / "elsewhere.html"
    assert main(["report", str(run_dir), "-o", str(other), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(other)}
    assert other.read_text() == (run_dir / "report.html").read_text()
    (checkpoint := run_dir / "checkpoints" / "step_000000000100").mkdir(parents=True)
    assert main(["report", str(checkpoint)]) == 0 and f"report {run_dir}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["gone"], "gone: no such run"),
        (["run/config.yaml"], "run/config.yaml: not a run directory (it has no run.json)"),
        (["run", "-o", "gone/x.html"], "gone/x.html: cannot be written (No such file or directory)"),
        (["run", "-o", "run"], "run: cannot be written (Is a directory)"),
    ],
)
def test_report_command_rejects_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, words: list[str], expected: str
) -> None:
    (tmp_path / "run").mkdir()
    make_run(tmp_path / "run", [0])
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and line.endswith(expected)
    assert sorted(tmp_path.rglob("*")) == before
