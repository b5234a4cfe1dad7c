"""`rl-training data`: what it shows, what it writes, and what it refuses."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hostile_data import good_arrays, minari, npz

from rl_training.cli.data_commands import histogram
from rl_training.cli.main import main
from rl_training.core.d4rl import normalized_score
from rl_training.data.datasets.formats.loaders import load_transitions
from rl_training.data.datasets.summary import trajectory_returns

needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is an extra")


def run(*words: str) -> int:
    return main(["data", *map(str, words)])


def test_show_tells_what_is_there(tmp_path: Path, capsys) -> None:
    path = npz()(tmp_path)
    assert run("show", path, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["transitions"], told["trajectories"], told["terminal"], told["not_terminal"]) == (6, 2, 1, 1)
    # rewards 0 1 2 | 3 4 5
    assert told["returns"] == {"mean": 7.5, "std": 4.5, "min": 3.0, "median": 7.5, "max": 12.0}
    assert told["lengths"]["mean"] == 3 and told["d4rl_score"] is None
    assert told["observations"] == {"shape": [2], "dtype": "float32", "min": 0.0, "max": 11.0}
    assert told["sha256"] == load_transitions(path).sha256()
    assert run("show", path) == 0
    text = capsys.readouterr().out
    assert "trajectories  2 (1 end in a terminal state)" in text and told["sha256"] in text
    assert "return        7.50 +- 4.50, 3.00 to 12.00" in text


@pytest.mark.parametrize("rewards", [np.full(6, 3e38), np.full(6, 3e38, np.float32), np.float16([6e4] * 6)])
def test_show_prints_valid_json_whatever_the_numbers(rewards, tmp_path: Path, capsys) -> None:
    assert run("show", npz(rewards=rewards)(tmp_path), "--json") == 0
    told = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert told["rewards"]["max"] == float(rewards[0]) and told["returns"]["max"] == 3 * float(rewards[0])
    assert run("show", npz(rewards=np.full(6, 1e308))(tmp_path), "--json") == 2  # their sum is not a number any more


@pytest.mark.parametrize("columns", [10, 24, 40, 80, 300])
def test_show_fits_the_terminal_and_has_no_escapes(columns: int, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run("show", npz()(tmp_path)) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= min(max(columns, 24), 100) and "\x1b" not in text


def test_show_works_where_blocks_cannot_be_printed(tmp_path: Path, monkeypatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    assert run("show", npz()(tmp_path)) == 0
    assert b"####" in written.getvalue()


def test_a_path_that_the_terminal_cannot_show_is_no_obstacle(tmp_path: Path, monkeypatch) -> None:
    written = io.BytesIO()
    path = npz("данные.npz")(tmp_path)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    assert run("convert", path, tmp_path / "новый.npz") == 0
    assert rb"\u043d\u043e\u0432\u044b\u0439.npz: 6 transitions" in written.getvalue()


def test_the_histogram_counts_every_value_once() -> None:
    # Five bins of 0.8 from 0 to 4; the largest fills the ten columns that are left.
    assert histogram([0, 1, 1, 2.4, 4], 16, solid=False) == [
        "  0 #####      1",
        "0.8 ########## 2",
        "1.6            0",
        "2.4 #####      1",
        "3.2 #####      1",
    ]
    values = np.random.default_rng(0).normal(size=500).tolist()
    lines = histogram(values, 40, solid=True)
    assert len(lines) == 12 and sum(int(line.split()[-1]) for line in lines) == 500
    assert {len(line) for line in lines} == {40}
    edges = np.linspace(min(values), max(values), 13)
    assert [int(line.split()[-1]) for line in lines] == np.histogram(values, edges)[0].tolist()
    assert histogram([5.0, 5.0], 20, solid=True) == ["5 " + "█" * 16 + " 2"]
    assert "▏" in histogram([0.0] * 5000 + [1.0], 40, solid=True)[-1]  # one in five thousand is still seen


HOSTILE_ID = "Hopper-v5\x1b[2J\n\x07error: \u202e" + "x" * 100_000


@pytest.mark.parametrize("kind", ["npz", pytest.param("minari", marks=needs_h5py)])
def test_the_name_of_an_environment_is_printed_in_one_clean_line(kind: str, tmp_path: Path, capsys) -> None:
    if kind == "npz":
        about = np.frombuffer(json.dumps({"env_id": HOSTILE_ID}).encode(), np.uint8)
        path = npz(rl_training=about)(tmp_path)
    else:
        path = minari(metadata=lambda values: {**values, "env_id": HOSTILE_ID})(tmp_path)
    env_id = load_transitions(path).env_id
    assert env_id is not None and env_id.startswith("Hopper-v5 [2J error: xxx") and len(env_id) <= 300
    assert run("show", path) == 0
    shown = capsys.readouterr().out
    assert len(shown) < 5000 and all(char.isprintable() or char == "\n" for char in shown)


@needs_h5py
def test_convert_goes_round_and_says_what_it_wrote(tmp_path: Path, capsys) -> None:
    first = npz()(tmp_path)
    digest = load_transitions(first).sha256()
    for source, target in (("data.npz", "a.hdf5"), ("a.hdf5", "b"), ("b", "c.npz")):
        assert run("convert", tmp_path / source, tmp_path / target, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert told["sha256"] == digest and told["transitions"] == 6 and told["path"] == str(tmp_path / target)
    assert load_transitions(tmp_path / "c.npz").sha256() == digest


def test_record_at_random_and_with_an_agent(tmp_path: Path, capsys, quick_config) -> None:
    words = ("--env", "Pendulum-v1", "--size", "30", "--seed", "2", "--quiet")
    assert run("record", tmp_path / "a.npz", *words) == run("record", tmp_path / "b.npz", *words) == 0
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert "30 transitions, 1 trajectories" in capsys.readouterr().out

    from rl_training.run.run import train

    run_dir = train(quick_config("sac", tmp_path / "runs", total_timesteps=30), show_progress=False).run_dir
    assert run("record", tmp_path / "c.npz", "--agent", run_dir, "--size", "30", "--noise", "0.1", "--quiet") == 0
    assert load_transitions(tmp_path / "c.npz").env_id == "Pendulum-v1"
    assert run("show", run_dir, "--env", "Pendulum-v1", "--json") == 0  # its replay
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["transitions"] == 30


PENDULUM = "--env Pendulum-v1"  # with its display: a mistake is told without one
MISTAKES = {
    "show @/mising.npz": "@/mising.npz: no such dataset",
    "show @": "@: is a directory, and not a Minari dataset (no data/metadata.json)",
    "show @/data.npz --env CartPole-v1": "@/data.npz: observations are of shape (2,), the environment's are (4,)",
    "convert @/data.npz @/data.npz": "@/data.npz: already exists",
    "convert @/data.npz @/x.csv": "@/x.csv: must end in .npz, .hdf5, .h5, or in nothing for a Minari folder",
    "convert @/bad.npz @/x.npz": "@/bad.npz: NaN or infinity in rewards: 6 of 6 rows, the first is row 0; "
    "leave them out with --drop-nonfinite",
    "convert @/bad.npz @/x.npz --drop-nonfinite": "@/bad.npz: has no transitions, at least 2 are needed",
    "record @/x.npz": "record needs --env ENV, or --agent PATH, or both",
    f"record @/x.npz --size 1 {PENDULUM}": "--size must be >= 2, got 1",
    f"record @/x.npz --noise 1 {PENDULUM}": "--noise is noise on an agent's actions: it needs --agent",
    f"record @/x.npz --seed -1 {PENDULUM}": "seed must be >= 0 and < 2**31, got -1",
    f"record @/data.npz {PENDULUM}": "@/data.npz: already exists",
    f"record /proc/x/y.npz {PENDULUM}": "/proc/x/y.npz: cannot be written (No such file or directory)",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_and_exit_2(words: str, tmp_path: Path, capsys) -> None:
    npz()(tmp_path)
    npz("bad.npz", rewards=np.full(6, np.nan))(tmp_path)
    assert run(*(word.replace("@", str(tmp_path)) for word in words.split())) == 2
    assert capsys.readouterr().err == f"error: {MISTAKES[words].replace('@', str(tmp_path), 1)}\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.npz", "data.npz"]


def test_a_misspelled_command_gets_the_nearest(capsys) -> None:
    assert run("shwo") == 2
    assert capsys.readouterr().err.endswith("; did you mean show?\n")


def test_a_refused_word_is_not_suggested(capsys) -> None:
    for words in (["data", "convert", "a", "b", "--clip-actions"], ["--quiet", "train"], ["list", "--seeds=3"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: unrecognized arguments: --") and "did you mean" not in said
    assert run("show", "a", "--drop-nonfinit") == run("show", "a", "--drop-nonfinite-rows") == 2
    assert capsys.readouterr().err.endswith("; did you mean --drop-nonfinite?\n")


def test_returns_are_summed_within_trajectories(tmp_path: Path) -> None:
    arrays = good_arrays(terminals=np.array([1, 0, 0, 0, 0, 0]), timeouts=np.array([0, 0, 1, 0, 0, 0]))
    np.savez(tmp_path / "data.npz", **arrays)
    returns, lengths = trajectory_returns(load_transitions(tmp_path / "data.npz"))
    assert returns.tolist() == [0, 3, 12] and lengths.tolist() == [1, 2, 3]


def test_d4rl_scores() -> None:
    assert normalized_score("Hopper-v5", 3234.3) == 100 and normalized_score("hopper-medium-v2", -20.272305) == 0
    assert normalized_score("mujoco/hopper/Hopper-v5", 1607.0138475) == pytest.approx(50)
    assert normalized_score("AdroitHandDoor-v1", 2880.5693087298737) == 100
    assert normalized_score("Pendulum-v1", 0) is normalized_score(None, 0) is None
    assert normalized_score("dm_control/hopper-hop-v0", 100) is None, "another hopper"


@pytest.mark.parametrize(
    ("env_id", "low", "high"),
    [
        ("antmaze-umaze-v0", 0.0, 1.0),
        ("antmaze-large-diverse-v2", 0.0, 1.0),
        ("kitchen-complete-v0", 0.0, 4.0),
        ("d4rl:kitchen-mixed-v0", 0.0, 4.0),
        ("maze2d-umaze-v1", 23.85, 161.86),
        ("maze2d-medium-v1", 13.13, 277.39),
        ("maze2d-large-v1", 6.7, 273.99),
    ],
)
def test_d4rl_scores_of_sparse_tasks_are_for_d4rls_own_ids(env_id: str, low: float, high: float) -> None:
    assert normalized_score(env_id, low) == 0 and normalized_score(env_id, high) == pytest.approx(100)
    others = ("AntMaze_UMaze-v5", "FrankaKitchen-v1", "PointMaze_UMaze-v3", "maze2d-umaze-dense-v1", "maze2d-open-v0")
    assert [normalized_score(other, high) for other in others] == [None] * 5  # where returns are of another size
