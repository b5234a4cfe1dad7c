"""Writers: the same numbers in every place, nothing twice or lost after a kill, and no run that they end."""

from __future__ import annotations

import csv
import json
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import make_quick_config
from resume_harness import CLOCK, make_config, read_json, run_dir_in

import rl_training
from rl_training.cli import main
from rl_training.core.checks import UserError
from rl_training.core.signals import Stopped, active_signals
from rl_training.files.json_lines import read_rows
from rl_training.run.callbacks import Callback
from rl_training.run.evaluate import Evaluator
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.writers.files import CsvFile, JsonLines
from rl_training.run.writers.opening import SERVICES

Rows = list[dict[str, Any]]
SEEDS = (3, 5)
OFFLINE = {"wandb": {"project": "tests", "mode": "offline"}}


def written(run_dir: Path) -> Rows:
    return list(read_rows(run_dir / "metrics.jsonl"))


def by_step(rows: Rows, seed: int) -> dict[int, dict[str, float]]:
    """The numbers of one seed by step, of training and evaluation rows together; the clock's left out."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        if row["seed"] == seed:
            values = {k: v for k, v in row.items() if k not in ("step", "seed", *CLOCK) and v is not None}
            found.setdefault(row["step"], {}).update(values)
    return found


# --- what each of them has ------------------------------------------------------------------------------------------
def of_csv(run_dir: Path) -> Rows:
    with (run_dir / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = [{name: float(value) for name, value in row.items() if value} for row in rows]
    return [{**row, "step": int(row["step"]), "seed": int(row["seed"])} for row in numbers]


def of_tensorboard(run_dir: Path) -> Rows:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    rows = []
    for seed in SEEDS:
        events = EventAccumulator(str(run_dir / "tensorboard" / f"seed_{seed}"))
        events.Reload()
        for name in events.Tags()["scalars"]:
            steps = [event.step for event in events.Scalars(name)]
            assert steps == sorted(set(steps)), name
            rows += [{"step": e.step, "seed": seed, name: e.value} for e in events.Scalars(name)]
    return rows


def of_wandb(run_dir: Path) -> Rows:
    from rl_training.run.writers.offline_segments import records, segments

    rows, ids = [], read_json(run_dir / "run.json")["writers"]["wandb"]["ids"]
    for seed in SEEDS:
        steps = []
        for path in segments(run_dir, ids[str(seed)]):
            found = list(records(path))
            assert {one.run.run_id for one in found if one.HasField("run")} <= {ids[str(seed)]}
            for one in [record.history for record in found if record.HasField("history")]:
                values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in one.item}
                steps.append(one.step.num)
                own = {name: value for name, value in values.items() if not name.startswith("_")}
                rows.append({"step": one.step.num, "seed": seed, **own})
        assert steps == sorted(steps)  # in the order of the segments
        names = [(row["step"], name) for row in rows if row["seed"] == seed for name in row if "/" in name]
        assert len(names) == len(set(names))
    return rows


def of_mlflow(run_dir: Path) -> Rows:
    from mlflow.tracking import MlflowClient

    rows, ids = [], read_json(run_dir / "run.json")["writers"]["mlflow"]["ids"]
    client = MlflowClient(tracking_uri=f"sqlite:///{run_dir.parent / 'mlflow.db'}")
    for seed in SEEDS:
        run = client.get_run(ids[str(seed)])
        assert run.info.status == "FINISHED" and run.data.params["algo"] == "dqn"
        for name in run.data.metrics:
            found = client.get_metric_history(ids[str(seed)], name)
            steps = [one.step for one in found]
            assert len(steps) == len(set(steps)), name
            rows += [{"step": one.step, "seed": seed, name: one.value} for one in found]
    return rows


READERS = {"csv": of_csv, "tensorboard": of_tensorboard, "wandb": of_wandb, "mlflow": of_mlflow}


@pytest.fixture(scope="module")
def new_store(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], None]:
    """Puts an empty MLflow database into a folder; making one takes MLflow seconds, so it is made once."""
    pytest.importorskip("sqlalchemy")
    tracking = pytest.importorskip("mlflow.tracking")
    made = tmp_path_factory.mktemp("store") / "mlflow.db"
    tracking.MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments()

    def put(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(made, folder / "mlflow.db")

    return put


@pytest.fixture(scope="module")
def killed_and_resumed(forks: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows, dict[str, Any]]:
    """A run that was killed between two checkpoints and resumed, its rows at that time, and its ids."""
    for package in ("tensorboard", "wandb"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("writers")
    config = make_config("dqn", writers={"csv": None, **OFFLINE}, tensorboard=True, checkpoint_interval=34)
    return kill_and_resume(forks, config, folder)


def kill_and_resume(forks: Any, config: Any, folder: Path) -> tuple[Path, Rows, dict[str, Any]]:
    # The rows of step 34 are in its checkpoint, later ones are repeated.
    forks.cut(config, folder, at="step", n=63)
    run_dir = run_dir_in(folder)
    before, ids = written(run_dir), read_json(run_dir / "run.json")["writers"]
    forks.resume(folder)
    return run_dir, before, ids


@pytest.mark.parametrize("name", ["csv", "tensorboard", "wandb"])
def test_a_killed_and_resumed_run_repeats_and_loses_nothing(name: str, killed_and_resumed: Any) -> None:
    check_resumed(name, *killed_and_resumed)


@pytest.mark.sweep
def test_a_killed_and_resumed_run_repeats_and_loses_nothing_in_mlflow(forks: Any, new_store, tmp_path: Path) -> None:
    new_store(tmp_path / "runs")
    check_resumed(
        "mlflow", *kill_and_resume(forks, make_config("dqn", writers=["mlflow"], checkpoint_interval=34), tmp_path)
    )


def check_resumed(name: str, run_dir: Path, before: Rows, ids: dict[str, Any]) -> None:
    """A writer has every row once, and the ids that it had before the kill."""
    rows = written(run_dir)
    assert before[-1]["step"] > 50  # rows after the checkpoint, of step 34 or 50, were repeated
    found = READERS[name](run_dir)
    for seed in SEEDS:
        expected, there = by_step(rows, seed), by_step(found, seed)
        assert list(there) == sorted(there) or name in ("tensorboard", "mlflow")
        assert there.keys() == expected.keys()
        for step in expected:
            assert there[step] == pytest.approx(expected[step], rel=1e-6), (seed, step)
    if name in ids:
        assert read_json(run_dir / "run.json")["writers"][name] == ids[name]
        assert set(ids[name]["ids"]) == {"3", "5"}


def test_a_segment_of_the_same_second_is_another_one(tmp_path: Path) -> None:
    """Weights & Biases names a segment by the second of its start, and would write into the one that is there."""
    pytest.importorskip("wandb")
    from rl_training.config.writers import WandbOptions
    from rl_training.run.writers.offline_segments import segments
    from rl_training.run.writers.services import Wandb

    config, ids = make_quick_config("dqn", tmp_path), {"0": "abc"}
    for number in range(2):
        service = Wandb(WandbOptions(mode="offline"), config, tmp_path, ids)
        service.write([{"step": number, "seed": 0, "train/n_updates": 1}])
        service.close(failed=False)
        assert service.received[0]["train/n_updates"] == number - 1
    assert len(segments(tmp_path, "abc")) == 2


def test_an_evaluation_that_was_interrupted_reaches_weights_and_biases(tmp_path: Path, monkeypatch) -> None:
    """The row of training of the same step was sent before."""
    pytest.importorskip("wandb")
    evaluate = Evaluator.run

    def interrupted(evaluator: Evaluator, step: int) -> Any:
        if step == 60:
            active_signals().received = signal.SIGTERM
            raise Stopped.by(signal.SIGTERM)
        return evaluate(evaluator, step)

    config = make_quick_config("dqn", tmp_path, seeds=SEEDS, writers=OFFLINE, eval_interval=20)
    with monkeypatch.context() as during:
        during.setattr(Evaluator, "run", interrupted)
        with pytest.raises(Stopped):
            train(config, show_progress=False)
    (run_dir,) = [path.parent for path in tmp_path.glob("*/run.json")]
    assert written(run_dir)[-1]["step"] == 60 and "eval/mean_reward" not in written(run_dir)[-1]
    resume_training(run_dir, show_progress=False)
    for seed in SEEDS:
        assert by_step(of_wandb(run_dir), seed)[60] == pytest.approx(by_step(written(run_dir), seed)[60])


def test_the_table_has_the_rows_of_the_json_lines(killed_and_resumed: Any) -> None:
    run_dir, _, _ = killed_and_resumed
    rows = [{k: v for k, v in row.items() if v is not None} for row in written(run_dir)]
    assert of_csv(run_dir) == rows


def test_columns_grow_and_text_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    table = CsvFile(path, [])
    assert path.read_text() == ""
    table.write([{"step": 1, "seed": 0, "a": 0.1}])
    table.write([{"step": 2, "seed": 0, "b": 'one, "two"', "a": None}, {"step": 2, "seed": 1, "a": float("nan")}])
    table.write([{"step": 3, "seed": 0, "b": 1e-300}])
    assert path.read_text() == ('step,seed,a,b\n1,0,0.1,\n2,0,,"one, ""two"""\n2,1,,\n3,0,,1e-300\n')
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


@pytest.mark.sweep
def test_a_copy_of_a_run_has_its_own_ids_and_every_row(tmp_path: Path) -> None:
    """The database is made by MLflow here, in both output directories."""
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    config = make_quick_config("dqn", tmp_path / "first", seeds=SEEDS, writers=["mlflow", "csv"])
    stopped = train(config, callbacks=lambda session: session.step < 60, show_progress=False)
    copy = resume_training(stopped.run_dir, output_dir=tmp_path / "second", show_progress=False)
    ids = [read_json(run / "run.json")["writers"]["mlflow"]["ids"] for run in (stopped.run_dir, copy.run_dir)]
    assert not set(ids[0].values()) & set(ids[1].values())
    rows = written(copy.run_dir)
    assert by_step(of_mlflow(copy.run_dir), 5).keys() == by_step(rows, 5).keys() >= {20, 60, 120}
    assert len(of_csv(copy.run_dir)) == len(rows)


def test_values_of_callbacks_reach_every_writer(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    class Add(Callback):
        def on_log(self, session: Any, rows: Any) -> None:
            for row in rows:
                row["plain name"] = 7

    config = make_quick_config("dqn", tmp_path, tensorboard=True, writers=["csv"], eval_episodes=0)
    result = train(config, callbacks=Add(), show_progress=False)
    events = EventAccumulator(str(result.run_dir / "tensorboard" / "seed_0"))
    events.Reload()
    assert [event.value for event in events.Scalars("plain name")] == [7.0] * 6
    assert [row["plain name"] for row in of_csv(result.run_dir)] == [7.0] * 6
    # A folder that was deleted is written anew, with the rows from before.
    shutil.rmtree(result.run_dir / "tensorboard")
    resume_training(result.run_dir, total_timesteps=140, callbacks=Add(), show_progress=False)
    events = EventAccumulator(str(result.run_dir / "tensorboard" / "seed_0"))
    events.Reload()
    assert [event.step for event in events.Scalars("plain name")] == [20, 40, 60, 80, 100, 120, 140]


# --- what goes wrong --------------------------------------------------------------------------------------------------
def test_a_writer_that_fails_does_not_end_the_run(tmp_path: Path, monkeypatch, capsys) -> None:
    write = CsvFile.write

    def full(self: CsvFile, rows: Any) -> None:
        if rows[0]["step"] >= 40:
            raise OSError(28, "No space left on device")
        write(self, rows)

    monkeypatch.setattr(CsvFile, "write", full)
    config = make_quick_config("dqn", tmp_path, writers=["csv"], eval_episodes=0)
    result = train(config, show_progress=False)
    assert result.metrics["global_step"] == 120 and len(written(result.run_dir)) == 6
    lines = [line for line in capsys.readouterr().err.splitlines() if "writer" in line]
    assert lines == [
        "writer csv failed at step 40 (OSError: [Errno 28] No space left on device); training continues, and "
        "metrics.jsonl has every row"
    ]
    monkeypatch.setattr(CsvFile, "write", write)  # the disk has space again
    resumed = resume_training(result.run_dir, total_timesteps=140, show_progress=False)
    assert [row["step"] for row in of_csv(resumed.run_dir)] == [20, 40, 60, 80, 100, 120, 140]


@pytest.mark.parametrize("name", ["wandb", pytest.param("mlflow", marks=pytest.mark.sweep)])
def test_a_failed_run_has_every_row_once(name: str, new_store, tmp_path: Path) -> None:
    """Closed, the service has the rows of steps 60 and 80, which are repeated after the checkpoint of step 50."""
    pytest.importorskip(name)

    def fail(session: Any) -> None:
        if session.step == 81:
            raise ZeroDivisionError

    new_store(tmp_path)
    config = make_quick_config("dqn", tmp_path, seeds=SEEDS, writers={"mlflow": None} if name == "mlflow" else OFFLINE)
    with pytest.raises(ZeroDivisionError):
        train(config, callbacks=fail, show_progress=False)
    (run_dir,) = [path.parent for path in tmp_path.glob("*/run.json")]
    before, ids = written(run_dir), read_json(run_dir / "run.json")["writers"]
    resume_training(run_dir, show_progress=False)
    assert max(row["step"] for row in before) >= 80
    check_resumed(name, run_dir, before, ids)


@pytest.mark.sweep
def test_a_service_that_was_down_gets_the_missing_rows(new_store, tmp_path: Path, monkeypatch, capsys) -> None:
    new_store(tmp_path)
    from rl_training.run.writers.services import Mlflow

    write = Mlflow.write

    def down(self: Mlflow, rows: Any) -> None:
        if rows[0]["step"] >= 40:
            raise ConnectionError("no answer")
        write(self, rows)

    monkeypatch.setattr(Mlflow, "write", down)
    result = train(make_quick_config("dqn", tmp_path, seeds=SEEDS, writers=["mlflow"]), show_progress=False)
    assert capsys.readouterr().err.count("writer mlflow failed at step 40 (ConnectionError: no answer)") == 1
    monkeypatch.setattr(Mlflow, "write", write)
    resumed = resume_training(result.run_dir, total_timesteps=140, show_progress=False)
    for seed in SEEDS:
        assert by_step(of_mlflow(resumed.run_dir), seed).keys() == by_step(written(resumed.run_dir), seed).keys()


class Away:
    """A service that can be reached once."""

    ids, notice, received = {"0": "abc"}, None, {}  # type: ignore[var-annotated]
    starts = 0

    def __init__(self, *_: Any) -> None:
        type(self).starts += 1
        if self.starts > 1:
            raise UserError("writer mlflow: no answer")

    def write(self, rows: Any) -> None: ...

    def close(self, failed: bool) -> None: ...


@pytest.mark.parametrize("reason", ["no answer", "evaluations.jsonl: shorter than recorded"])
def test_a_rejected_resume_leaves_the_run_as_it_was(reason: str, tmp_path: Path, monkeypatch) -> None:
    """The resume from an older checkpoint would remove newer ones, and cut the logs."""
    monkeypatch.setattr("rl_training.run.inputs.check_writers", lambda config: None)
    monkeypatch.setitem(SERVICES, "mlflow", type("Service", (Away,), {"starts": 0 if reason == "no answer" else -9}))
    config = make_quick_config("dqn", tmp_path, writers=["mlflow", "csv"], eval_interval=30, keep_checkpoints=3)
    run_dir = train(config, show_progress=False).run_dir
    if reason != "no answer":
        (run_dir / "evaluations.jsonl").write_text("")
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    files: list[JsonLines] = []
    made = JsonLines.__init__
    monkeypatch.setattr(JsonLines, "__init__", lambda self, *given: (files.append(self), made(self, *given))[1])
    with pytest.raises(UserError, match=reason):
        resume_training(run_dir / "checkpoints" / "step_000000000050", total_timesteps=130, show_progress=False)
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before
    assert len(files) == 2 and all(one._handle.closed for one in files)


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_package_is_one_line_before_anything_is_written(name: str, tmp_path: Path, monkeypatch) -> None:
    missing = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "sqlalchemy"}[name]
    pytest.importorskip("alembic")
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=rf"^writer {name} needs pip install 'rl-training\[{name}\]'.*$") as rejected:
        train(make_quick_config("dqn", tmp_path / "runs", writers=[name]), show_progress=False)
    assert "\n" not in str(rejected.value) and not (tmp_path / "runs").exists()


def test_a_missing_login_is_one_line_before_anything_is_written(tmp_path: Path, monkeypatch, capsys) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    words = ["train", "dqn", "CartPole-v1", "--output-dir", str(tmp_path / "runs"), "--set", "writers=[wandb]"]
    assert main([*words, "--total-timesteps", "50"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert line.startswith("error: writer wandb: not logged in") and "log in with `wandb login`" in line
    assert not (tmp_path / "runs").exists()


def test_a_store_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    wrong = {"mlflow": {"tracking_uri": "ftp://me:secret@nowhere/x"}}
    with pytest.raises(UserError, match=r"^writer mlflow: ftp://nowhere/x cannot be used: .*$") as rejected:
        train(make_quick_config("dqn", tmp_path / "runs", writers=wrong), show_progress=False)
    assert "\n" not in str(rejected.value) and not (tmp_path / "runs").exists()


WRONG = {
    "unknown": ("writers: [cvs]", "unknown writer 'cvs'; did you mean csv?"),
    "always": ("writers: [jsonl]", "unknown writer 'jsonl'; metrics.jsonl is always written"),
    "none near": ("writers: [comet]", "unknown writer 'comet'; there are csv, tensorboard, wandb, mlflow"),
    "option": ("writers: {wandb: {projct: x}}", "writer wandb: unknown key 'projct'; did you mean project?"),
    "value": ("writers: {wandb: {mode: off}}", "writer wandb: mode must be one of online, offline"),
    "text": ("writers: csv", "writers must be a mapping or a list of strings, got 'csv'"),
    "elsewhere": ("use_wandb: true", "unknown key 'use_wandb'; here it is writers"),
}


@pytest.mark.parametrize(("line", "message"), WRONG.values(), ids=WRONG)
def test_wrong_writers_are_reported_with_file_and_line(line: str, message: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"algo: dqn\nenv_id: CartPole-v1\n{line}\n")
    assert main(["train", "--config", str(path)]) == 2
    (reported,) = capsys.readouterr().err.splitlines()
    assert reported.startswith(f"error: {path}:3: ") and message in reported


# --- load_metrics -----------------------------------------------------------------------------------------------------
def test_metrics_as_a_frame(killed_and_resumed: Any, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    run_dir, before, _ = killed_and_resumed
    frame = rl_training.load_metrics(run_dir)
    assert list(frame.columns[:2]) == ["step", "seed"]
    assert str(frame["step"].dtype) == str(frame["seed"].dtype) == "int64"
    rows = written(run_dir)
    assert {name for row in rows for name in row} == set(frame.columns)
    assert not frame.duplicated(["step", "seed"]).any()
    for seed in SEEDS:
        of_seed = frame[frame.seed == seed].set_index("step")
        for step, values in by_step(rows, seed).items():
            assert of_seed.loc[step, list(values)].to_dict() == values
    # A run that was killed while it wrote a row.
    killed = tmp_path / "killed"
    killed.mkdir()
    lines = [json.dumps(row) for row in before]
    (killed / "metrics.jsonl").write_text("\n".join(lines) + '\n{"step": 99, "se')
    assert set(rl_training.load_metrics(str(killed))["step"]) == {row["step"] for row in before}
    (killed / "metrics.jsonl").write_text("")
    empty = rl_training.load_metrics(killed)
    assert isinstance(empty, pandas.DataFrame) and list(empty.columns) == ["step", "seed"] and empty.empty


def test_metrics_of_no_run_or_without_pandas_are_one_line(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(UserError, match="nothing: no such run"):
        rl_training.load_metrics(tmp_path / "nothing")
    with pytest.raises(UserError, match="load_metrics needs a run directory, or an agent that was trained, got 3"):
        rl_training.load_metrics(3)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"^load_metrics needs pandas; pip install 'rl-training\[pandas\]'$"):
        rl_training.load_metrics(tmp_path)
