"""The report holds the run's numbers, escapes everything, needs no network and survives broken files."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from rl_training.core.checks import UserError
from rl_training.core.statistics import summarize
from rl_training.report.charts import (
    Point,
    Series,
    format_column,
    format_number,
    format_ticks,
    line_chart,
    nice_ticks,
)
from rl_training.report.page import write_report

VOID = {"meta", "br", "line", "rect", "circle", "polyline", "polygon"}


class Balance(HTMLParser):
    """Checks that tags close in order, and remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def report_of(run_dir: Path) -> str:
    path = write_report(run_dir)
    assert path == run_dir / "report.html"
    assert not list(run_dir.glob("*.part")) and not list(run_dir.glob(".*.part"))
    page = path.read_text(encoding="utf-8")
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert not {"script", "link", "img", "iframe"} & set(balance.tags)
    assert "http://" not in page and "https://" not in page
    assert "NaN" not in page and "nan" not in re.findall(r'points="[^"]*"', page)
    return page


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def make_run(run_dir: Path, seeds: list[int], **info: Any) -> Path:
    write_rows(
        run_dir / "metrics.jsonl",
        [
            {
                "step": step,
                "seed": seed,
                "rollout/ep_rew_mean": None if step == 100 else step / 10 + seed,
                "train/critic_loss": 1 / step,
                "time/fps": 500.0,
                "time/time_elapsed": step / 500,
            }
            for step in range(100, 1001, 100)
            for seed in seeds
        ],
    )
    write_rows(
        run_dir / "evaluations.jsonl",
        [
            {"step": step, "seed": seed, "returns": [step / 10 + seed, step / 10 + seed + 20], "lengths": [5, 6]}
            for step in (500, 1000)
            for seed in seeds
        ],
    )
    (run_dir / "config.yaml").write_text("algo: dqn\nnet: [64, 64]\n")
    run = {
        "status": "finished",
        "algo": "dqn",
        "env_id": "CartPole-v1",
        "seeds": seeds,
        "versions": {"torch": "2.10.0"},
        "git_commit": "abc123",
        "command": ["rl-training", "train", "a b"],
        "started": "2026-01-01T10:00:00+00:00",
        "ended": "2026-01-01T12:00:00+00:00",
        "execution_plan": {"device": "cpu", "threads": 2},
        "resume": "exact",
        "metrics": {"global_step": 1000, "gradient_steps": 4321},
    }
    (run_dir / "run.json").write_text(json.dumps({**run, **info}))
    return run_dir


def tiles(page: str) -> dict[str, str]:
    found = re.findall(r'<dt>([^<]*)</dt><dd class="value">(.*?)</dd><dd class="detail">([^<]*)</dd>', page)
    return {name: re.sub("<[^>]*>", "", f"{value} | {detail}") for name, value, detail in found}


def test_one_seed(tmp_path: Path) -> None:
    page = report_of(make_run(tmp_path, [0]))
    assert tiles(page) == {
        "Final evaluation": "110 ± 10 | over 2 episodes",
        "Best evaluation": "110 | highest mean return",
        "Environment steps": "1,000 | ",
        "Gradient steps": "4,321 | ",
        "Wall time": "2.0 s | 500 steps/s",
    }
    for expected in ("DQN on CartPole-v1", "Finished", "train/critic_loss", "abc123", "torch 2.10.0", "net: [64, 64]"):
        assert expected in page
    assert "rl-training train &#x27;a b&#x27;" in page
    assert "device: cpu, threads: 2" in page
    assert "<h2>Seeds</h2>" not in page and "<video" not in page


def test_several_seeds_show_the_interquartile_mean_and_a_table(tmp_path: Path) -> None:
    page = report_of(make_run(tmp_path, [0, 1, 2, 3, 40]))
    shown = tiles(page)
    assert shown["Final evaluation, interquartile mean"].startswith("112 | 95 % interval ")  # 111, 112, 113
    assert shown["Final evaluation"] == "119.2 ± 15.4 | mean and spread over 5 seeds"
    assert shown["Wall time"] == "2.0 s | 2,500 steps/s, all seeds together"
    assert page.count("<tr><td>") == 5
    assert "<tr><td>40</td><td>150</td><td>10</td><td>150</td><td>140</td><td>1,000</td>" in page
    low, high = map(format_number, summarize([110.0, 111.0, 112.0, 113.0, 150.0])["interval"])
    assert f"step 1,000\nreturn: 112  ({low} to {high})" in page
    assert page.count('class="line thin"') == 10  # each seed's evaluations and training returns
    assert f'<tr><th scope="row">1,000</th><td>112  ({low} to {high})</td></tr>' in page


def test_very_many_seeds_stay_small(tmp_path: Path) -> None:
    run = make_run(tmp_path, list(range(300)))
    (run / "video.webm").write_bytes(b"x" * 2_900_000)
    page = report_of(run)
    assert len(page) < 5_000_000 and "thin: the first 64 seeds" in page and page.count('class="line thin"') == 128


def test_three_seeds_are_a_mean_without_a_band(tmp_path: Path) -> None:
    page = report_of(make_run(tmp_path, [0, 1, 20]))
    assert "step 1,000\nreturn: 117<" in page
    assert "mean; thin: each seed" in page and "interquartile" not in page


def test_distribution_of_the_last_and_the_best_evaluation(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0, 1])
    rows = [{"step": step, "seed": 0, "returns": returns} for step, returns in ((1, [9.0, 9.5]), (2, [0.0, 1.0, 1.0]))]
    write_rows(run / "evaluations.jsonl", rows)
    page = report_of(run)
    assert "Distribution of returns" in page
    assert "last evaluation: 3 from 0 to 2" in page and "best evaluation: 2 from 8 to 10" in page
    assert '<tr><th scope="row">8 to 10</th><td>0</td><td>2</td></tr>' in page


def test_videos_of_the_best_and_the_last_agent_that_fit(tmp_path: Path) -> None:
    run = make_run(tmp_path, [0])
    (run / "video.webm").write_bytes(b"best")
    (run / "video_last.webm").write_bytes(b"last")
    page = report_of(run)
    assert re.findall(r'<video [^>]*aria-label="([^"]*)"', page) == ["Best agent", "Last agent"]
    (run / "video_last.webm").write_bytes(b"x" * 3_100_000)
    page = report_of(run)
    assert page.count("<video ") == 1 and "Too large for this page: Last agent (3.1 MB)" in page
    (run / "video.webm").write_bytes(b"x" * 2_900_000)
    assert len(report_of(run)) < 5_000_000


def test_failed_seed_is_named_and_left_out_of_the_final_numbers(tmp_path: Path) -> None:
    failed = {"3": {"step": 700, "error": "loss is <nan>"}}
    page = report_of(
        make_run(tmp_path, [0, 1, 2, 3], failed_seeds=failed, resume="inexact", resume_note="env state is lost")
    )
    assert tiles(page)["Final evaluation"].endswith("over 3 seeds")
    assert "<b>Seed 3 failed.</b> step: 700, error: loss is &lt;nan&gt;" in page
    assert "<b>Resume is not exact.</b> env state is lost" in page
    assert "<tr><td>3</td><td>–</td><td>–</td>" in page


def test_video_is_inlined(tmp_path: Path) -> None:
    (make_run(tmp_path, [0]) / "video.webm").write_bytes(b"\x1aE\xdf\xa3 bytes")
    page = report_of(tmp_path)
    assert "<video controls autoplay loop muted" in page
    assert base64.b64encode(b"\x1aE\xdf\xa3 bytes").decode() in page


def test_hostile_text_is_escaped(tmp_path: Path) -> None:
    evil = '<script>alert("1")</script>\'&'
    make_run(
        tmp_path,
        [0, 1],
        algo=evil,
        env_id=evil,
        status=evil,
        versions={evil: evil},
        git_commit=evil,
        command=[evil],
        engine={evil: evil},
        started=evil,
        resume="inexact",
        resume_note=evil,
        failed_seeds={evil: evil},
    )
    (tmp_path / "config.yaml").write_text(f"name: {evil}</pre>")
    write_rows(tmp_path / "metrics.jsonl", [{"step": 1, "seed": 0, f"train/{evil}": 1.0}])
    page = report_of(tmp_path)
    assert "<script" not in page.lower()
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("names", [[], ["run.json"], ["metrics.jsonl"], ["evaluations.jsonl", "config.yaml"]])
def test_missing_files(tmp_path: Path, names: list[str]) -> None:
    make_run(tmp_path, [0, 1])
    for name in names or ["run.json", "metrics.jsonl", "evaluations.jsonl", "config.yaml"]:
        (tmp_path / name).unlink()
    page = report_of(tmp_path)
    assert ("No data yet." in page) == ("run.json" not in names)


def test_half_lines_nulls_and_broken_values(tmp_path: Path) -> None:
    make_run(tmp_path, [0], metrics=None, ended=None, status="running")
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('[1]\n\n"x"\nnull\n{"step": null}\n{"step": "7", "seed": 0}\n{"seed": []}\n')
        file.write('{"step": 1100, "seed": 0, "train/critic_loss": NaN, "rollout/ep_rew_mean": 1e308}\n')
        file.write('{"step": 1200, "seed": 0, "train/critic_loss": -Infinity, "time/time_elapsed": true}\n{"step": 13')
    with (tmp_path / "evaluations.jsonl").open("ab") as file:
        file.write(b'{"step": 1100, "seed": 0, "returns": [null, 60.0]}\n')
        file.write(b'{"step": 1200, "seed": 0, "returns": []}\n{"step": 1300, "seed": 0, "returns": [1\xff')
    page = report_of(tmp_path)
    assert "Running" in page
    assert tiles(page)["Last evaluation"].startswith("60 ± 0")
    assert tiles(page)["Environment steps"].startswith("1,200")
    assert "2 values not finite" in page


def test_broken_run_json(tmp_path: Path) -> None:
    (make_run(tmp_path, [0, 1]) / "run.json").write_text('{"status": "fini')
    page = report_of(tmp_path)
    assert "Training run" in page and "2 seeds" in page


def test_one_point_only(tmp_path: Path) -> None:
    make_run(tmp_path, [0])
    write_rows(tmp_path / "metrics.jsonl", [{"step": 0, "seed": 0, "rollout/ep_rew_mean": 0.0}])
    write_rows(tmp_path / "evaluations.jsonl", [{"step": 0, "seed": 0, "returns": [5.0]}])
    assert report_of(tmp_path).count('<circle class="dot" ') == 2


def test_long_runs_stay_small(tmp_path: Path) -> None:
    make_run(tmp_path, [0])
    rows = [{"step": step, "seed": 0, "train/loss": float(step % 7)} for step in range(20_000)]
    write_rows(tmp_path / "metrics.jsonl", rows)
    page = report_of(tmp_path)
    assert len(page) < 200_000
    assert "step 19,999" in page


def test_no_run_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run directory"):
        write_report(tmp_path / "missing")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 500, ["0", "100", "200", "300", "400", "500"]), (-1, 1, ["−1.0", "−0.5", "0", "0.5", "1.0"])],
)
def test_ticks_are_round_and_enclose(low: float, high: float, expected: list[str]) -> None:
    assert format_ticks(nice_ticks(low, high, 5)) == expected


@pytest.mark.parametrize(
    ("ticks", "expected"),
    [
        ([0, 20_000, 40_000], ["0", "20k", "40k"]),
        ([0, 500_000, 1_000_000], ["0", "0.5M", "1.0M"]),
        ([0, 1e-5, 2e-5], ["0", "1e-05", "2e-05"]),
        ([0, 2000, 4000], ["0", "2,000", "4,000"]),
    ],
)
def test_tick_labels(ticks: list[float], expected: list[str]) -> None:
    assert format_ticks(ticks) == expected


def test_numbers_for_people() -> None:
    assert [format_number(value) for value in (500.0, 12_345, 484.43, -0.01234, 2.3e-5)] == [
        "500",
        "12,345",
        "484.4",
        "−0.0123",
        "2.3e-05",
    ]
    assert format_column([484.43, 17.662, None]) == ["484.4", "17.7", "–"]


@pytest.mark.parametrize("values", [[0.0], [3.0, 3.0], [1e16, 1e16 + 2], [1e-300, 2e-300], [-1e149, 1e149], [1e300]])
def test_charts_survive_extreme_values(values: list[float]) -> None:
    svg = line_chart([Series("a", [Point(x, y) for x, y in enumerate(values)])], "t", "x", "y")
    assert "nan" not in svg and "inf" not in svg


def test_a_logarithmic_chart_has_equal_steps_for_equal_factors() -> None:
    svg = line_chart([Series("a", [Point(64, 0.1), Point(256, 1.0), Point(1024, 10.0)])], "t", "x", "y", scale="log")
    (places,) = re.findall(r'<polyline class="line" points="([^"]+)"', svg)
    (x0, y0), (x1, y1), (x2, y2) = (map(float, place.split(",")) for place in places.split())
    assert x2 - x1 == pytest.approx(x1 - x0, abs=0.2) and y2 - y1 == pytest.approx(y1 - y0, abs=0.2) and y1 < y0
    assert all(f">{tick}</text>" in svg for tick in ("64", "256", "1,024", "0.1", "1", "10"))


def test_two_series_share_a_chart() -> None:
    one, two = Series("first", [Point(1, 2.0)]), Series("second", [Point(1, 4.0, 3.0, 5.0), Point(2, 4.0)])
    svg = line_chart([one, two], "both", "x", "y")
    assert "step 1\nfirst: 2\nsecond: 4  (3 to 5)" in svg
