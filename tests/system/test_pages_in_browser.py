"""Reports of real runs in headless Chromium: nothing is loaded, nothing fails, videos play, numbers are the run's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, Page, browser, chromium
from conftest import make_quick_config

from rl_training.core.statistics import summarize
from rl_training.report.charts import format_number
from rl_training.report.page import write_report
from rl_training.run.run import train
from rl_training.studies.compare import collect, compare
from rl_training.studies.page import write_page
from rl_training.studies.text import estimate_text

pytestmark = pytest.mark.sweep  # two runs with videos and a browser
CELLS = "[...document.querySelectorAll('{}')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as started:
        yield started


@dataclass(frozen=True)
class Pages:
    """Real runs and their pages."""

    runs: list[Path]
    report: Path
    study: Path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    chromium()  # without a browser nothing is trained
    folder = tmp_path_factory.mktemp("pages")
    runs = []
    for algo, seeds in (("dqn", (0, 1, 2, 3)), ("ppo", (0, 1))):
        config = make_quick_config(algo, folder / "runs", seeds=seeds, video=True, eval_interval=40, eval_episodes=2)
        runs.append(train(config, show_progress=False).run_dir)
    for run in runs:
        best, final = (run / "agents" / f"seed_0_{kind}.safetensors" for kind in ("best", "final"))
        assert (run / "video_last.webm").exists() == (best.read_bytes() != final.read_bytes())
    write_report(runs[0])
    assert write_page([folder / "runs"], folder / "study.html") == []
    return Pages(runs, runs[0] / "report.html", folder / "study.html")


def check(page: Page) -> None:
    """What holds for every page at every width."""
    assert page.requests == [] and page.errors == []
    assert page.overflow() <= 0


@pytest.mark.parametrize("kind", ["report", "study"])
def test_page_is_whole_at_any_width_and_in_both_schemes(opened: Browser, pages: Pages, kind: str) -> None:
    page = opened.open(getattr(pages, kind))
    backgrounds = set()
    for width in (1200, 390):
        for dark in (False, True):
            page.resize(width, dark)
            check(page)
            backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2
    playing = page.videos_play()
    assert len(playing) >= (1 if kind == "report" else 2) and all(playing)
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    check(page)
    assert page.evaluate("document.querySelectorAll('figure svg').length") == page.evaluate(
        "document.querySelectorAll('figure details table').length"
    )
    assert getattr(pages, kind).stat().st_size < 5_000_000


def test_the_report_has_the_numbers_of_the_runs_files(opened: Browser, pages: Pages) -> None:
    page = opened.open(pages.report)
    rows = [json.loads(line) for line in (pages.runs[0] / "evaluations.jsonl").read_text().splitlines()]
    means = [sum(row["returns"]) / len(row["returns"]) for row in rows if row["step"] == 120]
    across = summarize(means)
    tiles = dict(zip(page.evaluate(CELLS.format("dt")), page.evaluate(CELLS.format("dd.value")), strict=True))
    assert tiles["Final evaluation, interquartile mean"] == format_number(across["iqm"])
    assert tiles["Environment steps"] == "120"
    table = page.evaluate(CELLS.format("figure details tr")) or []
    low, high = map(format_number, across["interval"])
    spread = f"  ({low} to {high})" if low != high else ""
    assert f"120{format_number(across['iqm'])}{spread}" in table


def test_the_study_has_the_numbers_of_its_comparison(opened: Browser, pages: Pages) -> None:
    page = opened.open(pages.study)
    text = page.evaluate("document.body.textContent")
    for table in compare(collect(pages.runs)).tasks:
        for row in table.variants:
            for shown in (row.name, estimate_text(row.final), estimate_text(row.best), estimate_text(row.area)):
                assert shown in text


def test_tables_open_by_keyboard(opened: Browser, pages: Pages) -> None:
    page = opened.open(pages.report)
    reached: dict[str, Any] = {}
    for _ in range(30):
        page.press("Tab", 9)
        reached = page.evaluate("({tag: document.activeElement.tagName, text: document.activeElement.textContent})")
        if reached["tag"] == "SUMMARY":
            break
    assert reached == {"tag": "SUMMARY", "text": "Table"}
    page.press("Enter", 13)
    assert page.evaluate("document.activeElement.parentElement.open") is True


def test_the_results_page_filters(opened: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).resolve().parents[2]
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    from results_page import read_entries, results_page

    path = tmp_path / "results.html"
    path.write_text(results_page(root / "benchmarks" / "results"), encoding="utf-8")
    entries = read_entries(root / "benchmarks" / "results")[0]
    page = opened.open(path)
    visible = "[...document.querySelectorAll('{}[data-name]')].filter(e => e.offsetParent).map(e => {})"
    rows, cards = visible.format("tr", "e.cells[0].textContent"), visible.format("section", "e.dataset.state")
    assert page.evaluate(rows) == [entry.name for entry in entries]
    for key, value in (("state", "not reached"), ("algo", "sac"), ("env", "Pendulum-v1"), ("name", "hopper")):
        page.evaluate(
            "document.querySelectorAll('[data-filter]').forEach(f => f.value = ''); {"
            f"const f = document.querySelector('[data-filter={key}]'); f.value = {json.dumps(value)};"
            "f.dispatchEvent(new Event('input')); }"
        )
        expected = {
            "state": [entry for entry in entries if entry.state == value],
            "algo": [entry for entry in entries if entry.algo == value],
            "env": [entry for entry in entries if entry.env == value],
            "name": [entry for entry in entries if value in entry.name or value in entry.env.lower()],
        }[key]
        assert page.evaluate(rows) == [entry.name for entry in expected] != []
        assert page.evaluate(cards) == [entry.state for entry in expected]
        assert page.evaluate("document.querySelector('#shown').textContent").startswith(f"{len(expected)} of ")
    for width in (1200, 390):
        page.resize(width)
        check(page)
    assert page.evaluate("document.querySelectorAll('polyline.dashed').length") > 0
