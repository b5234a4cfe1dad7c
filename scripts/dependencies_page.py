"""Writes docs/dependencies.md from pyproject.toml, docs/dependencies.yaml and docs/dependencies.json.

python scripts/dependencies_page.py               (`make docs`; a test fails if the page is out of date)
python scripts/dependencies_page.py --index URL   asks a package index (URL/NAME/json) for the newest releases first
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
PROSE, FACTS, PAGE = (ROOT / "docs" / f"dependencies.{suffix}" for suffix in ("yaml", "json", "md"))
CORE = "core"
MAX_LICENCE = 60  # characters; torch and numpy list those of everything they contain
HEAD = """\
<!-- Written by scripts/dependencies_page.py from dependencies.yaml and pyproject.toml: edit those and `make docs`. -->
# Dependencies

Every direct dependency: what it is for, the range that is allowed, its licence, its newest release, and what was
considered instead. Ranges are open above, except where a break is known; the reason stands beside the range in
`pyproject.toml`. The versions that `make setup` installs and the tests use are pinned in `constraints.txt`. None of
these packages is shipped with this library: pip installs them, under their own licences.

Asked of the package index on {date}: releases and licences. `python scripts/dependencies_page.py --index URL` asks
again.
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


def ask(index: str, name: str) -> dict[str, Any]:
    """The newest release of a package: version, date and licence."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/json", timeout=60) as answer:
        found = json.load(answer)
    info = found["info"]
    kinds = [one.rpartition(" :: ")[2] for one in info.get("classifiers") or [] if one.startswith("License ::")]
    licence = info.get("license_expression") or ", ".join(kinds) or (info.get("license") or "").strip()
    dates = [one["upload_time"][:10] for one in found["urls"]]
    return {
        "version": info["version"],
        "date": max(dates, default=None),
        "licence": licence.splitlines()[0] if licence else None,
        "python": info.get("requires_python"),
    }


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
    return "\n".join(lines).rstrip("\n") + "\n" + TRIED + LICENCES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", metavar="URL", help="a package index with a JSON interface")
    args = parser.parse_args()
    if args.index:
        names = dict.fromkeys(name for group in requirements().values() for name in group)
        packages = {name: ask(args.index, name) for name in sorted(names, key=str.lower)}
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        FACTS.write_text(json.dumps({"date": today, "packages": packages}, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
