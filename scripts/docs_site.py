"""Builds the documentation site from docs/, the registry, the code and benchmarks/results.

python scripts/docs_site.py [--output build]            (`make docs`; docs/site.yml is its config)
Markdown is staged in build/docs: links to files of the repository become links to copies of them in the site.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from algorithm_pages import algorithm_page, overview_page
from reference_pages import api_page, command_page

from rl_training.algorithms.registry import ALGORITHMS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
CONFIG = DOCS / "site.yml"
# Pages that are Markdown elsewhere in the repository, where they exist.
ELSEWHERE = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "benchmarks/results/README.md": "learning-proofs.md",
}
FILES = "files"  # the folder of the site with copies of the repository's files
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
TABLE_ROW = re.compile(r"^\|.*$", re.MULTILINE)
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pages() -> dict[str, tuple[Path, str]]:
    """For each page of the site the file that its relative links start from, and its Markdown."""
    found = {str(path.relative_to(DOCS)): (path, read(path)) for path in sorted(DOCS.rglob("*.md"))}
    for name in ALGORITHMS:
        source, text = found[f"algorithms/{name}.md"]
        found[source.relative_to(DOCS).as_posix()] = (source, algorithm_page(name, text))
    source, text = found["algorithms/index.md"]
    found["algorithms/index.md"] = (source, overview_page(text))
    elsewhere = {page: ROOT / source for source, page in ELSEWHERE.items() if (ROOT / source).exists()}
    found |= {page: (source, read(source)) for page, source in elsewhere.items()}
    found["command-reference.md"] = (DOCS / "command-reference.md", command_page())
    found["api-reference.md"] = (DOCS / "api-reference.md", api_page())
    return found


def unescaped(row: re.Match[str]) -> str:
    """A row of a table with the bars in its code as they are: GitHub needs them escaped, the site would show that."""
    return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0])


class Staging:
    """The Markdown of the site, written to a folder with the files that it links to."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.pages = folder, pages()
        self.places = {source.resolve(): page for page, (source, _) in self.pages.items()}

    def write(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        for page, (source, text) in self.pages.items():
            parts = FENCE.split(text)  # code has no links: every second part is a block
            link = partial(self.link, page=page, source=source)
            parts[::2] = [TABLE_ROW.sub(unescaped, LINK.sub(link, part)) for part in parts[::2]]
            target = self.folder / page
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(parts), encoding="utf-8")
        for extra in (*DOCS.glob("*.css"), *DOCS.glob("*.js")):
            shutil.copy(extra, self.folder)

    def link(self, found: re.Match[str], page: str, source: Path) -> str:
        """A link as the site has it: to a page, or to a copy of a file or of a folder's list."""
        target, _, anchor = found[2].partition("#")
        if not target or ":" in target:
            return found[0]
        path = (source.parent / target).resolve()
        place = self.places.get(path) or self.places.get(path / "README.md") or self.copied(path, found[2], page)
        relative = os.path.relpath(place, Path(page).parent)
        return f"{found[1]}{relative}{'#' if anchor else ''}{anchor}{found[3]}"

    def copied(self, path: Path, link: str, page: str) -> str:
        if not path.is_file() or not path.is_relative_to(ROOT):
            raise SystemExit(f"docs: {page}: {link} must be a file of the repository")
        place = f"{FILES}/{path.relative_to(ROOT)}"
        (self.folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, self.folder / place)
        return place


def leaves(nav: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for one in nav if isinstance(nav, list) else nav.values():
            yield from leaves(one)


def existing(nav: Any, found: set[str]) -> Any:
    """The navigation without the pages that do not exist; `algorithms/` stands for the page of each of them."""
    if nav == "algorithms/":
        return ["algorithms/index.md", *({name: f"algorithms/{name}.md"} for name in ALGORITHMS)]
    if isinstance(nav, dict):
        kept = {title: existing(below, found) for title, below in nav.items()}
        return {title: below for title, below in kept.items() if below}
    if isinstance(nav, list):
        return [kept for one in nav if (kept := existing(one, found))]
    return nav if nav in found else None


def site_config(found: set[str]) -> dict[str, Any]:
    config = dict(yaml.safe_load(read(CONFIG)))
    config["nav"] = existing(config["nav"], found)
    named = list(leaves(config["nav"]))
    if missing := sorted(found - set(named)):
        raise SystemExit(f"docs: {CONFIG.name} must name every page in nav, missing: {', '.join(missing)}")
    if twice := sorted({page for page in named if named.count(page) > 1}):
        raise SystemExit(f"docs: {CONFIG.name} must name every page in nav once, twice: {', '.join(twice)}")
    return {**config, "docs_dir": "docs", "site_dir": "site"}


def build(folder: Path) -> Path:
    """Write the site to `folder`/site, which is replaced; its Markdown stays beside it, in `folder`/docs."""
    staging = Staging(folder / "docs")
    staging.write()
    config = folder / "site.yml"
    config.write_text(yaml.safe_dump(site_config(set(staging.pages)), sort_keys=False), encoding="utf-8")
    shutil.rmtree(folder / "site", ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict", "--config-file", str(config)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"docs: zensical failed\n{done.stdout}{done.stderr}")
    return folder / "site"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--output", type=Path, default=ROOT / "build", help="the folder in which site/ is made")
    print(f"docs: {build(parser.parse_args().output.absolute()) / 'index.html'}")
