"""Writes docs/dependencies.md from pyproject.toml, docs/dependencies.yaml and docs/dependencies.json.

python scripts/dependencies_page.py               (`make docs`; a test fails if the page is out of date)
python scripts/dependencies_page.py --index URL   asks a package index (URL/NAME/json) for the newest releases first
python scripts/dependencies_page.py --tree        reads the indirect ones from this interpreter's packages first
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import re
import urllib.request
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROSE, FACTS, PAGE = (ROOT / "docs" / f"dependencies.{suffix}" for suffix in ("yaml", "json", "md"))
CORE = "core"
DEVELOPMENT = ("dev", "docs")  # extras that no user of the library installs
COPYLEFT = re.compile(r"GPL|MPL|Mozilla|EPL|Eclipse")
MAX_LICENCE = 60  # characters; torch and numpy list those of everything they contain
HEAD = """\
<!-- Written by scripts/dependencies_page.py from dependencies.yaml and pyproject.toml: edit those and `make docs`. -->
# Dependencies

Every direct dependency: what it is for, the range that is allowed, its licence, its newest release, and what was
considered instead; then the [indirect ones](#indirect-dependencies) that they bring along. Ranges are open above,
except where a break is known; the reason stands beside the range in `pyproject.toml`. The versions that `make setup`
installs and the tests use are pinned in `constraints.txt`. None of these packages is shipped with this library: pip
installs them, under their own licences.

Asked of the package index on {date}: releases and licences. `python scripts/dependencies_page.py --index URL` asks
again.
"""
TREE = """
## Indirect dependencies

What the packages of the core and of the extras for users require themselves, as `make setup` installs them (Python
{python}, Linux on x86-64; `python scripts/dependencies_page.py --tree` reads it again). `pip install .` alone brings
{core} of them. A torch that is built for CUDA also brings NVIDIA's libraries, under NVIDIA's licences.

Of all direct and indirect ones, these have a licence with conditions for those who pass the package on:
{copyleft}.
The package imageio-ffmpeg contains the program ffmpeg, built under the GPL 3, which writes videos in a process of its
own.

| package | version | licence | brought by |
|---|---|---|---|
"""
TRIED = """
## Interpreters

The tests run on Python 3.11. Before 0.2.0 the wheel and the source distribution were installed with pip into fresh
virtual environments of Python 3.10.13, 3.12.1 and 3.13.0, with the versions of `constraints.txt`, and used there: two
trainings, a resume, an evaluation, an export that was verified. All worked. `make install-test` repeats it. On 3.13
the extra `dmc` installs no DeepMind Control. Other systems than Linux on x86-64 were not tried.
"""
LICENCES = """
## Licences of what is shipped

The wheel and the source distribution hold code, configs, search spaces, a Slurm template and one small agent
(`assets/agents/pendulum.safetensors`, trained with this library), all written or made for this project and under its
MIT licence (`LICENSE`). Nothing of another project is copied into them, so no further notice is needed. The same
holds for the pages that the library writes: reports and the server's page have their own style and script and load
nothing.

Methods of published papers are cited where they are used ([sourcebook](sourcebook.md)). Files under `tests/data` are
numbers that other libraries computed (Stable-Baselines3, rliable), for comparison; they are not in the packages.
"""


def requirements() -> dict[str, dict[str, list[str]]]:
    """Core, or an extra, to package to its requirements as written."""
    import tomllib  # here: Python 3.10 does not have it

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found: dict[str, dict[str, list[str]]] = {}
    for group, lines in {CORE: project["dependencies"], **project["optional-dependencies"]}.items():
        for line in lines:
            name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
            if name != project["name"]:
                found.setdefault(group, {}).setdefault(name, []).append(line.removeprefix(name))
    return found


def licence(expression: str | None, classifiers: Sequence[str], text: str | None) -> str | None:
    """A package's licence in a line, from its metadata."""
    kinds = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    found = expression or ", ".join(kinds) or (text or "").strip()
    return found.splitlines()[0] if found else None


def ask(index: str, name: str) -> dict[str, Any]:
    """The newest release of a package: version, date and licence."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/json", timeout=60) as answer:
        found = json.load(answer)
    info = found["info"]
    dates = [one["upload_time"][:10] for one in found["urls"]]
    return {
        "version": info["version"],
        "date": max(dates, default=None),
        "licence": licence(info.get("license_expression"), info.get("classifiers") or [], info.get("license")),
        "python": info.get("requires_python"),
    }


def tree() -> dict[str, Any]:
    """The indirect dependencies, as installed here: version, licence, the direct ones that need them, whether core."""
    groups = {group: found for group, found in requirements().items() if group not in DEVELOPMENT}
    direct = {canonicalize_name(name) for group in groups.values() for name in group}
    found: dict[str, dict[str, Any]] = {}
    for group, packages in groups.items():
        for name, lines in packages.items():
            below = brought_along([Requirement(name + line) for line in lines])
            for indirect in below.keys() - direct:
                about = found.setdefault(indirect, {**_facts(below[indirect]), "by": [], "core": False})
                about["by"] = sorted({*about["by"], name}, key=str.lower)
                about["core"] |= group == CORE
    return dict(sorted(found.items()))


def brought_along(roots: list[Requirement]) -> dict[str, metadata.Distribution]:
    """The installed packages of requirements, and of all that they require here."""
    waiting = [one for one in roots if one.marker is None or one.marker.evaluate()]
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        one = waiting.pop()
        name, extras = canonicalize_name(one.name), frozenset(one.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            found[name] = metadata.distribution(one.name)
        except metadata.PackageNotFoundError:
            continue  # of an extra that is not installed here
        for needed in map(Requirement, found[name].requires or ()):
            markers = [{"extra": extra} for extra in ("", *extras)]
            if needed.marker is None or any(needed.marker.evaluate(marker) for marker in markers):
                waiting.append(needed)
    return found


def _facts(installed: metadata.Distribution) -> dict[str, Any]:
    about = installed.metadata
    licences = licence(about.get("License-Expression"), about.get_all("Classifier") or [], about.get("License"))
    return {"version": installed.version.partition("+")[0], "licence": licences}


def tree_lines(facts: dict[str, Any]) -> list[str]:
    """The section of the indirect dependencies."""
    packages, indirect = facts["packages"], facts["tree"]
    users = {name for group, found in requirements().items() if group not in DEVELOPMENT for name in found}
    named = {**{name: packages[name] for name in users}, **indirect}
    licences = {name: one["licence"] or "" for name, one in sorted(named.items())}
    bound = [f"{name} ({text})" for name, text in licences.items() if COPYLEFT.search(text)]
    core = sum(one["core"] for one in indirect.values())
    head = TREE.format(python=facts["python"], core=core, copyleft=", ".join(bound)).rstrip("\n")
    rows = [
        f"| {name} | {one['version']} | {shortened(one['licence'] or 'not stated')} | {', '.join(one['by'])} |"
        for name, one in indirect.items()
    ]
    return [head, *rows]


def shortened(text: str) -> str:
    return text if len(text) <= MAX_LICENCE else text[:MAX_LICENCE].rpartition(" ")[0] + " ..."


def rows(group: dict[str, list[str]], prose: dict[str, Any], facts: dict[str, Any]) -> list[str]:
    lines = ["| package | range | for | licence | newest release | considered instead |", "|---|---|---|---|---|---|"]
    for name, ranges in group.items():
        about, fact = prose[name], facts[name]
        allowed = "<br>".join(f"`{one}`" for one in ranges)
        release = f"{fact['version']}, {fact['date']}" if fact["date"] else fact["version"]
        cells = (name, allowed, about["for"], shortened(fact["licence"] or "not stated"), release, about["instead"])
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def page() -> str:
    prose = yaml.safe_load(PROSE.read_text(encoding="utf-8"))
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    lines = [HEAD.format(date=facts["date"])]
    for group, found in requirements().items():
        title = "Core" if group == CORE else f"Extra `{group}`"
        lines += [f"## {title}", "", *rows(found, prose, facts["packages"]), ""]
    tables = "\n".join(lines).rstrip("\n") + "\n" + "\n".join(tree_lines(facts)) + "\n"
    return tables + TRIED + LICENCES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", metavar="URL", help="a package index with a JSON interface")
    parser.add_argument("--tree", action="store_true", help="read the indirect dependencies from this interpreter")
    args = parser.parse_args()
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    if args.index:
        names = dict.fromkeys(name for group in requirements().values() for name in group)
        packages = {name: ask(args.index, name) for name in sorted(names, key=str.lower)}
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        facts |= {"date": today, "packages": packages}
    if args.tree:
        facts |= {"python": ".".join(platform.python_version_tuple()[:2]), "tree": tree()}
    if args.index or args.tree:
        FACTS.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
