"""Writes docs/settings.md from the settings of the algorithms and the fields of the config.

python scripts/settings_page.py            (`make docs`; a test fails if the file is out of date)
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rl_training.algorithms.registry import ALGORITHMS, learner_class
from rl_training.config.meanings import FieldMeaning, describe, source_of_defaults
from rl_training.config.train_config import TrainConfig

PAGE = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
HEAD = """\
<!-- Written by scripts/settings_page.py from the comments beside the settings: edit those, then `make docs`. -->
# Settings

Every field of the config and every setting of every algorithm: keywords in Python (`SAC("Pendulum-v1", gamma=0.98)`),
keys in a config (the settings under `algo_kwargs`), `--set gamma=0.98` on the command line. `rl-training describe sac`
and `help(SAC)` show the same. A list may be given for a `Sequence`; `null` in a file is `None` in Python.
"""


def table(described: Iterable[FieldMeaning]) -> list[str]:
    """One row for each setting."""
    lines = ["| name | type | default | meaning |", "|---|---|---|---|"]
    for one in described:
        cells = (f"`{one.name}`", f"`{one.type_text}`", f"`{one.default_text}`", one.explanation)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return lines


def sources(algo: str) -> list[str]:
    """The source of an algorithm's defaults, and of those that are another algorithm's."""
    settings = learner_class(algo).settings_type
    own, others = source_of_defaults(settings), dict[str, list[str]]()
    for one in describe(settings).values():
        if one.source != own:
            others.setdefault(one.source, []).append(f"`{one.name}`")
    return [f"Defaults: {own}.", *(f"{', '.join(names)}: {source}." for source, names in others.items())]


def page() -> str:
    fields = describe(TrainConfig)
    lines = [HEAD, "## The config", "", *table(fields.values())]
    settings = [one for algo in ALGORITHMS for one in describe(learner_class(algo).settings_type).values()]
    for name, section in {one.name: one.section for one in settings if one.section is not None}.items():
        lines += ["", f"## {name}", "", f"The keys of the setting `{name}`.", "", *table(describe(section).values())]
    for algo in ALGORITHMS:
        learner = learner_class(algo)
        lines += ["", f"## {algo}", "", f"{learner.title}.", ""]
        lines += [" ".join(sources(algo)), "", *table(describe(learner.settings_type).values())]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
