"""Writes docs/sourcebook.md from docs/methods.yaml and the registry.

python scripts/sourcebook.py            (`make docs`; a test fails if the file is out of date)
The YAML file names the algorithm and settings that implement a method. Whether they exist is looked up in the registry,
and every registered algorithm must implement some method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rl_training.algorithms.registry import ALGORITHMS, learner_class

DOCS = Path(__file__).resolve().parents[1] / "docs"
HEAD = """\
<!-- Written by scripts/sourcebook.py from docs/methods.yaml and the registry: edit those, then `make docs`. -->
# Sourcebook: deep reinforcement learning by year

What each method added, where it was published, and whether it is in this library: **full**, **narrow** (with what is
missing) or not yet. The column *here* is looked up in the registry and in the algorithms' settings when this file
is written, and a test fails when it is out of date. A method stands under the year in which its paper first appeared;
preprints of earlier versions may be older.
"""


@dataclass(frozen=True)
class Method:
    name: str
    area: str
    paper: str
    authors: str
    adds: str
    arxiv: str | None = None
    venue: str | None = None
    here: dict[str, dict[str, Any]] = field(default_factory=dict)  # algorithm -> settings that make it this method
    lacks: str | None = None

    @property
    def status(self) -> str:
        if not all(offers(algorithm, settings) for algorithm, settings in self.here.items()) or not self.here:
            return "not yet"
        return "narrow" if self.lacks else "full"


def offers(algorithm: str, settings: dict[str, Any]) -> bool:
    """Whether an algorithm is registered; if so, settings that it does not have are an error."""
    if algorithm not in ALGORITHMS:
        return False
    learner_class(algorithm).settings_type(**settings)
    return True


def read_methods(path: Path = DOCS / "methods.yaml") -> dict[str, list[Method]]:
    sections = yaml.safe_load(path.read_text())
    return {str(year): [Method(**values) for values in methods] for year, methods in sections.items()}


def setting_text(settings: dict[str, Any]) -> str:
    return "".join(f", `{written({name: value})[1:-1]}`" for name, value in settings.items())


def written(value: Any) -> str:
    """Settings as a config has them."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf).strip()


def here_cell(method: Method) -> str:
    if method.status == "not yet":
        return "not yet"
    names = " and ".join(f"`{algorithm}`{setting_text(settings)}" for algorithm, settings in method.here.items())
    return f"**{method.status}**: {names}" + (f"; lacks {method.lacks}" if method.lacks else "")


def source_cell(method: Method) -> str:
    link = f"[arXiv:{method.arxiv}](https://arxiv.org/abs/{method.arxiv})" if method.arxiv else None
    return f"{method.authors}, *{method.paper}*, " + ", ".join(text for text in (method.venue, link) if text)


def sourcebook(sections: dict[str, list[Method]]) -> str:
    methods = [method for section in sections.values() for method in section]
    statuses = [method.status for method in methods]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in ("full", "narrow", "not yet"))
    lines = [HEAD, f"{len(methods)} methods: {counts}.", "", "## In this library", ""]
    lines += ["| algorithm | what it is | methods |", "|---|---|---|"]
    for algorithm in ALGORITHMS:
        own = [method.name for method in methods if algorithm in method.here]
        if not own:
            raise ValueError(f"docs/methods.yaml has no method for the registered algorithm {algorithm!r}")
        lines.append(f"| `{algorithm}` | {learner_class(algorithm).title} | {'; '.join(own)} |")
    for year, section in sections.items():
        lines += ["", f"## {year[0].upper()}{year[1:]}", "", "| method | area | paper | what it added | here |"]
        lines.append("|---|---|---|---|---|")
        lines += [f"| {m.name} | {m.area} | {source_cell(m)} | {m.adds} | {here_cell(m)} |" for m in section]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (DOCS / "sourcebook.md").write_text(sourcebook(read_methods()))
