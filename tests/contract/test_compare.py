"""`rl-training compare`: own runs, other libraries' files, groups, bad input and what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl_training.cli.main import main
from rl_training.core.bounds import ATARI, score_bounds
from rl_training.core.checks import UserError
from rl_training.studies.collect import Collection
from rl_training.studies.compare import collect, compare
from rl_training.studies.curves import make_curve, read_csv, to_csv
from rl_training.studies.foreign_curves import origin_of
from rl_training.studies.text import plain_text


def make_run(folder: Path, algo: str, env: str, seeds: list[int], level: float, **changes: Any) -> Path:
    """A run directory with evaluations at steps 100 to 400; the return rises by `level` each time."""
    folder.mkdir(parents=True)
    config = {"algo": algo, "env_id": env, "total_timesteps": 400, "num_envs": 1, "env_kwargs": {}}
    config |= {"algo_kwargs": {"gamma": 0.99, "network": {"kind": "mlp"}}, "output_dir": str(folder.parent), **changes}
    (folder / "config.yaml").write_text(json.dumps(config))
    (folder / "run.json").write_text(
        json.dumps({"status": "finished", "algo": algo, "env_id": env, "seeds": seeds, "failed_seeds": {}})
    )
    rows = [
        {"step": step, "seed": seed, "returns": [level * step / 100 + seed - 1, level * step / 100 + seed + 1]}
        for step in (100, 200, 300, 400)
        for seed in seeds
    ]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 400, "seed": seeds[0], "train/loss": 0.5}) + "\n")
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    make_run(tmp_path / "runs" / "a", "dqn", "CartPole-v1", [0, 1, 2, 3, 4], 10.0)
    make_run(tmp_path / "runs" / "b", "ppo", "CartPole-v1", [0, 1, 2, 3, 4], 20.0)
    return tmp_path / "runs"


def test_one_table_per_task_with_the_runs_numbers(runs: Path) -> None:
    found = compare(collect([runs]))
    (table,) = found.tasks
    assert [row.name for row in table.variants] == ["ppo", "dqn"]  # the best first
    ppo = table.variants[0]
    assert (ppo.final.value, ppo.median, ppo.best.value, ppo.steps) == (82.0, 82.0, 82.0, 400)
    assert ppo.area.value == pytest.approx(52.0)  # a straight line from 20 to 80, and the seed
    assert ppo.final.low is not None and 80.0 <= ppo.final.low < 82.0 < (ppo.final.high or 0) <= 84.0
    assert [(at.step, at.value) for at in ppo.curve] == [(100, 22.0), (200, 42.0), (300, 62.0), (400, 82.0)]
    assert ppo.optimality_gap is None  # no bounds are known
    (better,) = table.improvements
    assert (better.first, better.second, better.probability, better.low) == ("ppo", "dqn", 1.0, 1.0)
    dqn = next(one for one in table.profiles if one.name == "dqn")
    assert table.thresholds[0] == 40.0 and dqn.values[0] == 0.8 and dqn.values[-1] == 0.0


def test_fewer_than_four_seeds_are_a_mean_without_an_interval(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "dqn", "CartPole-v1", [0, 1, 5], 10.0)
    found = compare(collect([run]))
    (row,) = found.tasks[0].variants
    assert (row.final.value, row.final.low, row.final.statistic) == (42.0, None, "mean")
    assert all(at.low is None for at in row.curve)
    assert "42 (mean)" in plain_text(found) and "a mean without an interval" in plain_text(found)


def test_settings_make_groups_with_names_that_tell_them_apart(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "dqn", "CartPole-v1", [0, 1], 10.0)
    make_run(tmp_path / "b", "dqn", "CartPole-v1", [2, 3], 10.0, device="cuda", eval_episodes=50)  # the same training
    make_run(tmp_path / "c", "dqn", "CartPole-v1", [0, 1], 20.0, algo_kwargs={"gamma": 0.9, "network": {"kind": "cnn"}})
    make_run(tmp_path / "d", "sac", "CartPole-v1", [0], 1.0)
    (table,) = compare(collect([tmp_path])).tasks
    assert {row.name: row.seeds for row in table.variants} == {
        "dqn (gamma=0.99, network.kind=mlp)": (0, 1, 2, 3),
        "dqn (gamma=0.9, network.kind=cnn)": (0, 1),
        "sac": (0,),
    }
    named = compare(collect([f"old={tmp_path / 'a'}", f"new={tmp_path / 'c'}"]))
    assert {row.name for row in named.tasks[0].variants} == {"old", "new"}


def test_more_differences_than_a_name_holds_are_numbered(tmp_path: Path) -> None:
    for number, last in enumerate((1, 2)):
        kwargs = {"a": number, "b": number, "c": number, "d": last}
        make_run(tmp_path / f"{number}", "dqn", "CartPole-v1", [0], 1.0, algo_kwargs=kwargs)
    make_run(tmp_path / "3", "dqn", "CartPole-v1", [0], 1.0, algo_kwargs={"a": 0, "b": 0, "c": 0, "d": 9})
    names = [row.name for row in compare(collect([tmp_path])).tasks[0].variants]
    assert len(set(names)) == 3 and all("variant" in name for name in names)


def test_other_arguments_of_an_environment_make_another_task(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "dqn", "CartPole-v1", [0], 10.0)
    make_run(tmp_path / "b", "dqn", "CartPole-v1", [0], 10.0, env_kwargs={"max_episode_steps": 50})
    assert [table.task for table in compare(collect([tmp_path])).tasks] == [
        "CartPole-v1 (max_episode_steps=50)", "CartPole-v1 (max_episode_steps=none)",
    ]  # fmt: skip


def test_the_same_seed_twice_is_noted_and_used_once(runs: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "again", "dqn", "CartPole-v1", [0], 10.0)
    found = collect([runs, tmp_path / "again"])
    assert len(found.curves) == 10
    assert [note for note in found.notes if "has seed 0 twice" in note and "again is not" in note]


def test_tasks_have_a_table_each_and_are_only_compared_on_normalised_scores(runs: Path, tmp_path: Path) -> None:
    for algo, level in (("dqn", 500.0), ("ppo", 800.0)):
        make_run(runs / f"hopper-{algo}", algo, "Hopper-v5", [0, 1, 2, 3], level)
    collection = collect([runs])
    found = compare(collection)
    assert [table.task for table in found.tasks] == ["CartPole-v1", "Hopper-v5"]
    assert any("2 tasks have a table each" in note for note in found.notes)
    gap = found.tasks[1].variants[0].optimality_gap
    expected = np.mean([1 - (3200 + seed + 20.272305) / (3234.3 + 20.272305) for seed in range(4)])
    assert gap is not None and gap.value == pytest.approx(expected) and gap.low is not None
    with pytest.raises(UserError, match=r"no bounds are known for CartPole-v1; give them with bounds=\.\.\."):
        compare(collection, across=True)
    across = compare(collection, across=True, bounds={"CartPole-v1": (0.0, 100.0)}).across
    assert across is not None and [row.name for row in across.variants] == ["ppo", "dqn"]
    assert across.improvements[0].probability == 1.0
    scores = [(80 + seed) / 100 for seed in range(5)] + [(3220.272305 + seed) / 3254.572305 for seed in range(4)]
    assert across.variants[0].final.value == pytest.approx(np.mean(sorted(scores)[2:-2]))


@pytest.mark.parametrize(
    ("env_id", "bounds"),
    [
        ("ALE/Pong-v5", (-20.7, 14.6)),
        ("BreakoutNoFrameskip-v4", (1.7, 30.5)),
        ("dm_control/hopper-hop-v0", (0.0, 1000.0)),
        ("Hopper-v5", (-20.272305, 3234.3)),
        ("CartPole-v1", None),
        ("ALE/Unknown-v5", None),
    ],
)
def test_bounds_of_environments(env_id: str, bounds: tuple[float, float] | None) -> None:
    assert score_bounds(env_id) == bounds
    assert len(ATARI) == 57 and all(low < high for low, high in ATARI.values())


def test_failed_seeds_are_left_out_and_noted(runs: Path) -> None:
    record = json.loads((runs / "b" / "run.json").read_text())
    (runs / "b" / "run.json").write_text(json.dumps({**record, "failed_seeds": {"4": {"step": 300}}}))
    found = collect([runs])
    assert [one.seed for one in found.curves if one.name == "ppo"] == [0, 1, 2, 3]
    assert any(note.endswith("b: seed 4 failed and is left out") for note in found.notes)


def test_up_to_ignores_later_steps(runs: Path) -> None:
    (table,) = compare(collect([runs]), up_to=250).tasks
    assert table.variants[0].final.value == 42.0
    with pytest.raises(UserError, match="no curve has a value at step 50 or before"):
        compare(collect([runs]), up_to=50)


def test_seeds_evaluated_at_other_steps_are_interpolated() -> None:
    curves = [
        make_curve("x", "E", 0, [(0, 0.0), (100, 10.0), (200, 20.0)]),
        make_curve("x", "E", 1, [(50, 5.0), (150, 15.0)]),
    ]
    (table,) = compare(Collection([curve for curve in curves if curve])).tasks
    assert [(at.step, at.value) for at in table.variants[0].curve] == [(50, 5.0), (100, 10.0), (150, 15.0)]


def test_of_very_many_variants_the_best_is_compared_with_each() -> None:
    curves = [make_curve(f"v{level}", "E", 0, [(1, float(level))]) for level in range(11)]
    (table,) = compare(Collection([curve for curve in curves if curve])).tasks
    assert [(one.first, one.second) for one in table.improvements] == [("v10", f"v{i}") for i in reversed(range(10))]
    few = compare(Collection([curve for curve in curves[:10] if curve])).tasks[0]
    assert len(few.improvements) == 45


def test_curves_as_csv_give_the_same_tables(runs: Path, tmp_path: Path) -> None:
    found = compare(collect([runs]))
    path = tmp_path / "curves.csv"
    path.write_text(to_csv(found.curves))
    assert path.read_text().splitlines()[0] == "exp_name,env_name,seed,metric,env_step,value"
    assert compare(collect([path])).tasks == found.tasks


def test_a_metric_of_training_is_compared_too(runs: Path) -> None:
    (table,) = compare(collect([runs], metric="train/loss")).tasks
    assert table.variants[0].final.value == 0.5
    with pytest.raises(UserError, match=r"has no metric train/los;.*did you mean train/loss\?"):
        collect([runs / "a"], metric="train/los")


# Other people's files


def write_sb3(folder: Path, values: list[float]) -> None:
    folder.mkdir(parents=True)
    results = np.array(values)[:, None] + np.array([-1.0, 1.0])
    np.savez(folder / "evaluations.npz", timesteps=np.arange(1, len(values) + 1) * 100, results=results)
    episodes = "".join(f"{value},10,{i}.5\n" for i, value in enumerate(values))
    (folder / "0.monitor.csv").write_text('#{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n' + episodes)


def test_stable_baselines3_files(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_sb3(tmp_path / "logs" / "dqn" / f"CartPole-v1_{seed}", [1.0, 2.0, 3.0 + seed])
    found = collect([tmp_path / "logs"])
    assert [(one.name, one.task, one.seed, one.final) for one in found.curves] == [
        ("dqn", "CartPole-v1", 1, 4.0), ("dqn", "CartPole-v1", 2, 5.0),
    ]  # fmt: skip
    monitor = collect([f"mine={tmp_path / 'logs/dqn/CartPole-v1_1/0.monitor.csv'}"]).curves[0]
    assert (monitor.name, monitor.task, monitor.steps.tolist()) == ("mine", "CartPole-v1", [10, 20, 30])
    assert monitor.values.tolist() == pytest.approx([1.0, 1.5, 7 / 3])


def test_a_monitor_file_averages_the_last_hundred_episodes(tmp_path: Path) -> None:
    path = tmp_path / "monitor.csv"
    path.write_text('#{"env_id": "E-v0"}\nr,l,t\n' + "".join(f"{i},1,0\n" for i in range(250)))
    assert collect([path]).curves[0].values[[0, 99, 249]].tolist() == pytest.approx([0.0, 49.5, 199.5])


def test_an_npz_with_python_objects_is_rejected_without_running_them(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "exploded",))

    np.savez(tmp_path / "evaluations.npz", timesteps=np.array([1]), results=np.array([Bomb()], dtype=object))
    with pytest.raises(UserError, match=r"evaluations\.npz: not an evaluations\.npz"):
        collect([tmp_path / "evaluations.npz"], env="E")
    assert not (tmp_path / "exploded").exists()


def test_damaged_files_of_stable_baselines3(tmp_path: Path) -> None:
    path, steps = tmp_path / "evaluations.npz", np.arange(10)
    np.savez_compressed(path, timesteps=steps, results=np.ones((10, 3)))
    intact = path.read_bytes()
    place = intact.index(b"results.npy") + 40
    huge = b"'shape': (10, 9999999999), }"
    np.savez(path, timesteps=steps, results=np.zeros((10, 3)))
    declares = path.read_bytes().replace(b"'shape': (10, 3), }" + b" " * (len(huge) - 19), huge)
    np.savez(path, timesteps=steps, results=np.zeros(()))
    scalar = path.read_bytes()
    damaged = intact[:place] + b"\xff" * 20 + intact[place + 20 :]
    for data in (damaged, declares, scalar, intact[:-30], intact.replace(b"results", b"nothing")):
        path.write_bytes(data)
        with pytest.raises(UserError, match=r"evaluations\.npz: not an evaluations\.npz of [^\n]*$"):
            collect([path], env="E")
    (tmp_path / "monitor.csv").write_text("#" + "[" * 100_000 + "\nr,l,t\n")
    with pytest.raises(UserError, match=r"monitor\.csv: not a monitor\.csv"):
        collect([tmp_path / "monitor.csv"], env="E")


def test_tensorboard_files(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    for seed in (1, 2):
        with SummaryWriter(str(tmp_path / f"Hopper-v4__sac__{seed}__1700000000")) as writer:
            for step in (0, 10, 20):
                writer.add_scalar("charts/episodic_return", step * seed, step)
                writer.add_scalar("losses/q", 1.0, step)
    found = collect([tmp_path])
    assert [(one.name, one.task, one.seed, one.values.tolist()) for one in found.curves] == [
        ("sac", "Hopper-v4", 1, [0.0, 10.0, 20.0]), ("sac", "Hopper-v4", 2, [0.0, 20.0, 40.0]),
    ]  # fmt: skip
    assert collect([tmp_path], metric="losses/q").curves[0].final == 1.0


def test_folders_name_what_files_do_not() -> None:
    origin = origin_of(Path("/x/logs/ppo/HalfCheetah-v4_3/evaluations.npz"))
    assert (origin.name, origin.task, origin.seed) == ("ppo", "HalfCheetah-v4", 3)
    origin = origin_of(Path("/x/my_run_seed_7/eval/evaluations.npz"))
    assert (origin.name, origin.task, origin.seed) == ("my_run_seed_7", None, 7)


# The command


def test_command_prints_tables_and_writes_files(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", str(runs), "--csv", str(tmp_path / "out" / "curves.csv")]) == 0
    captured = capsys.readouterr()
    assert "CartPole-v1: return" in captured.out and "82 [80." in captured.out
    assert len(read_csv(tmp_path / "out" / "curves.csv")) == 10
    assert main(["compare", str(runs), "--json", "--score", "area"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["score"] == "area" and answer["tasks"][0]["variants"][0]["area"]["value"] == pytest.approx(52.0)


@pytest.mark.sweep
def test_figures_are_svg_and_pdf(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for folder in ("one", "two"):
        assert main(["compare", str(runs), "--figures", str(tmp_path / folder)]) == 0
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    kinds = ("curves", "improvement", "profile", "scores")
    assert names == [f"CartPole-v1-{kind}.{suffix}" for kind in kinds for suffix in ("pdf", "svg")]
    for name in names:
        data = (tmp_path / "one" / name).read_bytes()
        assert data.startswith(b"%PDF" if name.endswith("pdf") else b"<?xml")
        assert data == (tmp_path / "two" / name).read_bytes()


def test_figures_without_matplotlib_say_how_to_install_it(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert main(["compare", str(runs), "--figures", str(tmp_path)]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert errors == ["error: figures need matplotlib; pip install 'rl-training[figures]'"]


def damage_nothing(run: Path) -> None:
    (run / "evaluations.jsonl").write_text("")


def damage_record(run: Path) -> None:
    (run / "run.json").write_text("{")


def damage_record_gone(run: Path) -> None:
    (run / "run.json").unlink()


def damage_line(run: Path) -> None:
    path = run / "evaluations.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"returns"', b'"ret\xff', 1))


def damage_config(run: Path) -> None:
    (run / "config.yaml").write_text("algo: [")


@pytest.mark.parametrize("damage", [damage_nothing, damage_record, damage_record_gone, damage_line, damage_config])
def test_a_damaged_run_is_listed_and_the_rest_is_compared(
    runs: Path, capsys: pytest.CaptureFixture[str], damage: Any
) -> None:
    damage(make_run(runs / "broken", "sac", "CartPole-v1", [0, 1], 5.0))
    assert main(["compare", str(runs)]) == 1
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if line.startswith("left out: ")]
    assert len(lines) == 1 and "broken" in lines[0]
    assert "ppo" in captured.out and "sac" not in captured.out


def test_a_line_cut_short_by_a_kill_is_no_damage(runs: Path) -> None:
    with (runs / "a" / "evaluations.jsonl").open("a") as file:
        file.write('{"step": 500, "se')
    assert collect([runs]).problems == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nothing", None, "no such run or file"),
        ("notes.txt", b"hello", "unknown kind of file; known are run directories, .csv"),
        ("x.csv", b"a,b\n1,2\n", "lacks the columns exp_name"),
        ("x.csv", b"\xff\xfe\x00", "not a text file"),
        ("x.csv", b"exp_name,env_name,seed,metric,env_step,value\n", "has no rows"),
        ("x.csv", b"exp_name,env_name,seed,metric,env_step,value\na,E,x,r,1,2\n", ":2: seed must be a number, got 'x'"),
        ("x.csv", b"exp_name,env_name,seed,metric,env_step,value\na,E,0,r,1.5,2\n", ":2: env_step must be a whole"),
        ("monitor.csv", b"r,l,t\n1,2,3\n", "not a monitor.csv of Stable-Baselines3"),
        ("monitor.csv", b"", "not a monitor.csv of Stable-Baselines3"),
        ("evaluations.npz", b"PK\x03\x04", "not an evaluations.npz of Stable-Baselines3"),
        ("events.out.tfevents.1", b"\x00" * 40, "events.out.tfevents.1: "),
        ("empty", "folder", "no runs and no curves in it"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: Any, message: str
) -> None:
    if content == "folder":
        (tmp_path / name).mkdir()
    elif content is not None:
        (tmp_path / name).write_bytes(content)
    assert main(["compare", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ") and message in line


@pytest.mark.parametrize("text", ["CartPole-v1", "CartPole-v1=0", "=0:1", "E=1:0", "E=a:b", "E=0:inf"])
def test_bad_bounds_are_one_line(runs: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["compare", str(runs), "--bounds", text]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert ("must have LOW < HIGH" if text == "E=1:0" else "is not ENV=LOW:HIGH") in line


def test_an_extended_run_has_its_last_total(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The config keeps the total with which the run began."""
    run = make_run(tmp_path / "a", "dqn", "E", [0], 1.0, total_timesteps=200)
    make_run(tmp_path / "b", "dqn", "E", [1], 1.0)
    record = json.loads((run / "run.json").read_text())
    extended = {**record, "asked": {"total_timesteps": 400}, "metrics": {"global_step": 400}}
    (run / "run.json").write_text(json.dumps(extended))
    assert [one.name for one in compare(collect([tmp_path])).tasks[0].variants] == ["dqn"]
    assert main(["watch", str(run)]) == 0
    assert "dqn E  400/400  100%" in capsys.readouterr().out
