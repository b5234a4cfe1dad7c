"""The documentation site: it builds, its links lead somewhere, and it is read and searched without a network."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, Page, browser

from rl_training.algorithms.registry import ALGORITHMS
from rl_training.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
SHOWN = ("index.html", "algorithms/sac.html", "settings.html", "command-reference.html", "from-stable-baselines3.html")
pytestmark = pytest.mark.sweep  # builds fifty pages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, str(ROOT / "scripts" / "docs_site.py"), "--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def opened() -> Iterator[Browser]:
    with browser() as started:
        yield started


def text(site: Path, name: str) -> str:
    return (site / name).read_text(encoding="utf-8")


def test_links_lead_somewhere_and_nothing_is_loaded_from_another_host(site: Path) -> None:
    from check_site import problems

    assert problems(site) == []


def test_the_navigation_names_every_page_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import docs_site

    monkeypatch.setattr(docs_site, "read", lambda path: "nav: [{A: a.md}, {B: [{C: b.md}, {D: a.md}]}]")
    with pytest.raises(SystemExit, match=r"must name every page in nav once, twice: a\.md"):
        docs_site.site_config({"a.md", "b.md"})
    with pytest.raises(SystemExit, match=r"must name every page in nav, missing: c\.md"):
        docs_site.site_config({"a.md", "b.md", "c.md"})


def test_the_checker_finds_broken_links_and_outside_hosts(tmp_path: Path) -> None:
    from check_site import problems

    (tmp_path / "other.html").write_text('<h2 id="there">x</h2>')
    (tmp_path / "style.css").write_text("@import 'https://fonts.example.org/a.css'; b { src: url(//c.example/d) }")
    page = '<a href="other.html#there">a</a><a href="other.html#gone">b</a><a href="gone.html">c</a>'
    page += '<script src="https://cdn.example.org/x.js"></script><img src="//cdn.example.org/y.png">'
    page += '<link rel="stylesheet" href="https://cdn.example.org/z.css"><a href="https://example.org">link</a>'
    (tmp_path / "index.html").write_text(page)
    assert problems(tmp_path) == [
        "index.html: loads https://cdn.example.org/x.js from another host",
        "index.html: loads //cdn.example.org/y.png from another host",
        "index.html: loads https://cdn.example.org/z.css from another host",
        "index.html: other.html#gone has no such anchor",
        "index.html: gone.html does not exist",
        "style.css: loads https://fonts.example.org/a.css",
        "style.css: loads //c.example/d",
    ]


def test_every_algorithm_and_command_has_its_part(site: Path) -> None:
    for name in ALGORITHMS:
        page = text(site, f"algorithms/{name}.html")
        for heading in ("equations", "when-to-use-it", "results", "settings", "in-code"):
            assert f'id="{heading}"' in page, f"{name}: {heading}"
    commands = next(action.choices for action in build_parser()._actions if action.dest == "command")
    reference = text(site, "command-reference.html")
    assert [name for name in commands if f'id="{name}"' not in reference] == []


def test_markdown_was_understood(site: Path) -> None:
    """No list, table or block of code was taken for the text of a paragraph."""
    mistaken = re.compile(r"<p>(?:(?!</p>).)*\n(?:- |\| |\d+\. |```)", re.DOTALL)
    assert [path.name for path in site.rglob("*.html") if mistaken.search(path.read_text(encoding="utf-8"))] == []


def check(page: Page) -> None:
    assert page.errors == [] and page.overflow() <= 0
    assert [url for url in page.requests if not url.startswith("file:")] == []


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_in_a_browser(name: str, site: Path, opened: Browser) -> None:
    for width in (390, 1200):
        check(opened.open(site / name, width))


def test_search_works_on_files(site: Path, opened: Browser) -> None:
    page = opened.open(site / "index.html")
    page.evaluate("document.querySelector('[data-md-component=search] button, label[for=__search]').click()")
    page.evaluate("new Promise(done => setTimeout(done, 500))")
    page.call("Input.insertText", text="expectile")
    # The results are in a tree of their own.
    links = "[...document.querySelectorAll('*')].flatMap(e => [...(e.shadowRoot?.querySelectorAll('a') ?? [])])"
    found = f"{links}.some(a => a.href.includes('algorithms/iql.html'))"
    end = time.monotonic() + 20
    while time.monotonic() < end and not page.evaluate(found):
        time.sleep(0.2)
    assert page.evaluate(found)
    check(page)
