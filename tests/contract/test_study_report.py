"""`rl-training report` of many runs, `--watch`, and `rl-training watch`."""

from __future__ import annotations

import fcntl
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_compare import make_run
from test_report import Balance

from rl_training.cli.main import main
from rl_training.report.charts import format_number
from rl_training.studies.compare import collect, compare


def page_of(path: Path) -> str:
    page = path.read_text(encoding="utf-8")
    balance = Balance()
    balance.feed(page)
    assert balance.open == [] and not {"script", "link", "img", "iframe"} & set(balance.tags)
    assert "http://" not in page and "https://" not in page and "nan" not in page
    return page


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "study"
    make_run(folder / "a", "dqn", "CartPole-v1", [0, 1, 2, 3, 4], 10.0)
    make_run(folder / "b", "dqn", "CartPole-v1", [0, 1, 2, 3], 20.0, algo_kwargs={"gamma": 0.9})
    make_run(folder / "c", "ppo", "CartPole-v1", [0, 1], 15.0)
    for name, video in (("a", b"of a"), ("c", b"of c")):
        (folder / name / "video.webm").write_bytes(video)
    return folder


def test_a_folder_of_runs_has_one_report(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(study)]) == 0
    page = page_of(study / "report.html")
    assert "<h1>DQN, PPO on CartPole-v1</h1>" in page
    (table,) = compare(collect([study])).tasks
    for row in table.variants:
        assert f"{format_number(row.final.value)} [" in page or f"{format_number(row.final.value)} (mean)" in page
        assert f'<th scope="row">{row.name}</th>' in page
    videos = re.findall(r'aria-label="([^"]*)" src="data:video', page)
    assert videos == ["ppo, best agent", "dqn (gamma=0.99, network.kind=mlp), best agent"]
    assert '<th scope="row">algo_kwargs.gamma</th><td>0.99</td><td>0.9</td>' in page
    assert "<td>ppo on CartPole-v1</td>" in page and "rl-training train --config" in page
    assert page.count('class="line thin"') == 11  # one for each seed


def test_a_study_has_one_video_for_each_algorithm(study: Path) -> None:
    """That of its best variant."""
    (study / "b" / "video.webm").write_bytes(b"of b")
    assert main(["report", str(study)]) == 0
    videos = re.findall(r'aria-label="([^"]*)" src="data:video', page_of(study / "report.html"))
    assert videos == ["dqn (gamma=0.9, network.kind=none), best agent", "ppo, best agent"]


def test_several_targets_need_an_output(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(study / "a"), str(study / "b")]) == 2
    assert capsys.readouterr().err == "error: the report of several runs needs -o FILE\n"
    output = study / "both.html"
    assert main(["report", str(study / "a"), str(study / "b"), "-o", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"report": str(output)}
    assert "DQN on CartPole-v1" in page_of(output)


def test_a_damaged_run_is_left_out_of_the_report(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (study / "b" / "run.json").write_text("{")
    assert main(["report", str(study)]) == 1
    assert "left out: " in capsys.readouterr().err
    page = page_of(study / "report.html")
    assert "<b>Left out.</b>" in page and "gamma=0.9" not in page


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    evil = '<script>alert("1")</script>'
    make_run(tmp_path / "runs" / "a", evil, evil, [0, 1, 2, 3], 1.0, algo_kwargs={evil: evil})
    make_run(tmp_path / "runs" / "b", evil, evil, [0, 1, 2, 3], 1.0)
    assert main(["report", str(tmp_path / "runs")]) == 0
    assert "<script" not in page_of(tmp_path / "runs" / "report.html")


def test_compare_writes_a_page(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(study), "--page", str(tmp_path / "page.html")]) == 0
    page = page_of(tmp_path / "page.html")
    assert "Performance profile" in page and "Probability of improvement" in page and "<h2>Runs</h2>" not in page


class Running:
    """Holds the lock of a run, as its process does, and ends it after a while."""

    def __init__(self, run_dir: Path, seconds: float, **end: Any) -> None:
        self.run_dir, self.seconds, self.end = run_dir, seconds, end
        self.handle = (run_dir / ".lock").open("w")
        fcntl.flock(self.handle, fcntl.LOCK_EX)
        self.update(status="running")
        self.thread = threading.Thread(target=self.finish)
        self.thread.start()

    def update(self, **values: Any) -> None:
        path = self.run_dir / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def finish(self) -> None:
        time.sleep(self.seconds)
        with (self.run_dir / "evaluations.jsonl").open("a") as file:
            for seed in (0, 1):
                file.write(json.dumps({"step": 500, "seed": seed, "returns": [77.0 + seed]}) + "\n")
        self.update(**{"status": "finished", **self.end})
        self.handle.close()


def test_watch_rewrites_the_report_until_the_run_ends(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    running = Running(study / "c", 1.0)
    refreshing = []

    def look() -> None:
        while running.thread.is_alive():
            path = study / "c" / "report.html"
            if path.exists():
                refreshing.append('http-equiv="refresh" content="1"' in path.read_text())
            time.sleep(0.05)

    looking = threading.Thread(target=look)
    looking.start()
    assert main(["report", str(study / "c"), "--watch", "--every", "0.1"]) == 0
    looking.join()
    assert refreshing and all(refreshing)
    page = page_of(study / "c" / "report.html")
    assert "refresh" not in page and "step 500\nreturn: 77.50" in page and "Finished" in page


def test_a_study_is_watched_before_its_first_evaluation(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (study / name / "run.json").unlink()
        (study / name / "config.yaml").unlink()
    (study / "c" / "evaluations.jsonl").write_text("")
    running = Running(study / "c", 1.0)
    pages = []

    def look() -> None:
        while running.thread.is_alive():
            if (study / "report.html").exists():
                pages.append((study / "report.html").read_text())
            time.sleep(0.05)

    looking = threading.Thread(target=look)
    looking.start()
    assert main(["report", str(study), "--watch", "--every", "0.1"]) == 0
    looking.join()
    assert "No results yet" in pages[0] and "still running, without results yet" in pages[0]
    assert "PPO on CartPole-v1" in (study / "report.html").read_text()


def test_watch_in_a_terminal_ends_with_the_run(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Running(study / "c", 0.6)
    assert main(["watch", str(study / "c"), "--every", "0.1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    evaluations = [line for line in lines if ": evaluation" in line]
    assert [line.split(":")[0] for line in evaluations] == [f"step {step}" for step in (100, 200, 300, 400, 500)]
    assert evaluations[-1] == "step 500: evaluation 77.5 +- 0.5 (mean and spread of 2 seeds)"
    assert lines[-1] == "finished at step 500"


def test_watching_a_failed_run_exits_1(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Running(study / "c", 0.2, status="failed").thread.join()
    assert main(["watch", str(study / "c"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == {"status": "failed", "steps": 500.0, "evaluations": 10}


@pytest.mark.parametrize("command", ["report", "watch"])
def test_what_is_no_run_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    for name, message in ((tmp_path / "missing", "no such run"), (tmp_path, "not a run directory")):
        assert main([command, str(name)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    make_run(tmp_path / "a", "dqn", "E", [0], 1.0)
    if command == "watch":
        assert main(["watch", str(tmp_path)]) == 2
        assert capsys.readouterr().err.endswith("not a run directory (it has no run.json); the runs in it are a\n")


@pytest.mark.parametrize("text", ["0", "x", "-1", "nan"])
def test_every_must_be_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert main(["watch", str(tmp_path), "--every", text]) == 2
    assert "is not a number of seconds" in capsys.readouterr().err
