"""The pages for people: their links, commands, code, numbers and lists hold."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_imports import LAYERS

from rl_training.algorithms.registry import ALGORITHMS
from rl_training.cli.main import build_parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
RESULTS = ROOT / "benchmarks" / "results"
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFINITIONS = (ast.ClassDef, ast.FunctionDef)
MAX_WORDS = 700  # of the README, without the table of algorithms
page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of one language; an empty one is that of commands."""
    return [code for found, code in FENCED.findall(text) if found == language]


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> Iterator[list[str]]:
    """The arguments of every `rl-training` command, in a block or in a sentence."""
    lines = [line for block in blocks(text, "") for line in block.splitlines()]
    inline = re.findall(r"`(rl-training [^`]+)`", FENCED.sub("", text))
    for line in [*lines, *inline]:
        if line.startswith("rl-training "):
            yield shlex.split(line, comments=True)[1:]


@page
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        found = (path.parent / file).resolve() if file else path
        assert found.exists(), f"{path.name}: {target}"
        assert not anchor or anchor in anchors(found), f"{path.name}: {target}"


@page
def test_commands_are_those_of_the_command_line(path: Path) -> None:
    for words in commands(path.read_text(encoding="utf-8")):
        build_parser().parse_args(words)


def test_every_argument_of_the_command_line_is_explained() -> None:
    def unexplained(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for below, its_parser in action.choices.items():
                    yield from unexplained(f"{name} {below}", its_parser)
            elif not action.help:
                yield f"{name} {action.option_strings or action.dest}"

    assert list(unexplained("rl-training", build_parser())) == []


@page
def test_python_examples_parse_and_configs_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for block in blocks(text, "python"):
        ast.parse(block)
    for config in re.findall(r"configs/[a-z0-9_]+/[a-z0-9_]+\.yaml", text):
        assert (ROOT / config).exists(), f"{path.name}: {config}"


@page
def test_files_and_names_in_them_exist(path: Path) -> None:
    """`folder/file.py` is a file of the repository or of the package, and `folder/file.py: Name.attribute` is in it."""
    text = path.read_text(encoding="utf-8")
    for file, names in re.findall(r"([\w/]+/\w+\.py)(?:: (\w+(?:\.\w+)?)(?=[`(,]|  |$))?", text, re.MULTILINE):
        found = next((root / file for root in (ROOT, ROOT / "src" / "rl_training") if (root / file).exists()), None)
        assert found is not None, f"{path.name}: {file}"
        defined = {node.name for node in ast.walk(ast.parse(found.read_text())) if isinstance(node, DEFINITIONS)}
        assert {name for name in names.split(".") if name} <= defined, f"{path.name}: {file}: {names}"


def test_every_page_is_linked_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT) for path in PAGES[2:] if path.parent.name != "algorithms" or path.stem == "index"]
    assert [str(path) for path in pages if f"({path})" not in readme] == []


def test_every_algorithm_has_a_page_that_the_overview_links() -> None:
    overview = (ROOT / "docs" / "algorithms" / "index.md").read_text(encoding="utf-8")
    assert {path.stem for path in (ROOT / "docs" / "algorithms").glob("*.md")} == {"index", *ALGORITHMS}
    assert [name for name in ALGORITHMS if f"({name}.md)" not in overview] == []


def test_the_readme_is_short_and_names_every_algorithm() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if re.match(r"\| `\w+` \|", line)]
    assert [line.split("`")[1] for line in table] and {line.split("`")[1] for line in table} == set(ALGORITHMS)
    assert len(" ".join(line for line in lines if line not in table).split()) <= MAX_WORDS


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_the_layers_are_listed_in_their_order(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    if name == "CONTRIBUTING.md":
        listed = re.findall(r"\w+", text.partition("From the bottom to the top:")[2].partition("`core`")[0])
    else:
        listed = re.findall(r"^  (\w+)", blocks(text, "")[0], re.MULTILINE)[::-1]
    assert [layer for layer in listed if layer in LAYERS] == list(LAYERS)


def result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def ratio(group: str, task: str, peer: str) -> float:
    rows = {(row["task"], row["peer"]): row["ratio_median"] for row in result("speed-cpu")[group]}
    return float(rows[task, peer])


def test_the_numbers_of_the_readme_are_those_of_the_results() -> None:
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    kills, fuzz = result("kill_campaign"), result("fuzz")
    assert kills["lost_runs"] == kills["unequal_finals"] == 0
    assert f"{kills['kills']} kills in {kills['runs']} runs of {len(kills['algorithms'])} algorithms" in readme
    updates = {row["seeds"]: row["all_per_s"] for row in result("speed-gpu")["updates"] if row["algo"] == "sac"}
    assert f"64 seeds of SAC make {round(updates[64], -2):,.0f} updates" in readme
    assert f"one makes {round(updates[1], -1):,.0f} " in readme
    sac = ratio("training", "sac-halfcheetah", "stable_baselines3 SAC")
    sbx = ratio("training", "sac-halfcheetah", "sbx SAC")
    iql = ratio("updates", "iql-updates", "d3rlpy IQL")
    assert f"{sac:.1f} times the steps per second of Stable-Baselines3's SAC" in readme
    assert f"{sbx:.1f} times those of SBX's" in readme
    assert f"{iql:.1f} times the updates of d3rlpy's IQL" in readme
    assert fuzz["code_executions"] == fuzz["tracebacks"] == fuzz["undetected_flips"] == 0
    assert f"{fuzz['checkpoints_and_agents'] + fuzz['configs'] + fuzz['datasets']:,} mutated files" in readme
    table = (RESULTS / "README.md").read_text(encoding="utf-8")
    reached = re.findall(r"^\| \[.*?\| (yes|no) \|", table, re.MULTILINE)
    assert f"{reached.count('yes')} of {len(reached)} learning proofs" in readme
    assert f"the other {reached.count('no')} are" in readme
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert f"Of {len(reached)} proofs {reached.count('yes')} reached it. The other {reached.count('no')} are" in page
    missed = re.findall(r"^\| \[([\w-]+)\].*\| no \|", table, re.MULTILINE)
    assert set(missed) <= set(re.findall(r"^\| \[([\w-]+)\]\(", page, re.MULTILINE))
