"""The pages of the algorithms: docs/algorithms/<name>.md, with what the registry, the settings and the results say.

A page's own text has the idea, the equations and when to use it. Facts, results, settings and the losses in code are
generated when the site is built (scripts/docs_site.py), so no committed page changes with a result.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

from settings_page import sources, table
from sourcebook import Method, read_methods, source_cell

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import ALGORITHMS, learner_class
from rl_training.config.meanings import describe

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
CONFIGS = ROOT / "src" / "rl_training" / "assets" / "configs"
NO_RESULTS = "No learning proof of this algorithm has been recorded yet."
# Of the table of proofs; the others are in the table itself.
COLUMNS = ("proof", "steps", "seeds", "best agent", "final agent", "wanted", "reached", "peer", "reference")


def algorithm_page(name: str, text: str) -> str:
    """The page of one algorithm: its idea, facts, the rest of its own text, and the generated parts."""
    idea, heading, rest = text.partition("\n## ")
    learner = learner_class(name)
    own = [idea, *facts(name, learner), f"{heading}{rest}".strip()]
    parts = [*own, *results(name), *settings(name), *code(learner)]
    return "\n".join(parts) + "\n"


def methods_of(name: str) -> list[Method]:
    return [method for methods in read_methods().values() for method in methods if name in method.here]


def facts(name: str, learner: type[Learner]) -> list[str]:
    """A table of what the registry knows."""
    cls, regime = learner.__name__, regime_of(learner)
    configs = [f"`configs/{name}/{path.name}`" for path in sorted((CONFIGS / name).glob("*.yaml"))]
    methods = methods_of(name)
    own = [method for method in methods if not method.here[name]] or methods  # without settings: the algorithm itself
    rows = {
        "name": f"`{name}`: `rl-training train {name} ENV`",
        "class": f"`from rl_training import {cls}`",
        "kind": regime,
        "actions": ", ".join(learner.actions),
        "observations": ", ".join(learner.observations),
        "paper": "; ".join(source_cell(method) for method in own),
        "code": f"[algorithms/{name}.py](../../src/rl_training/algorithms/{name}.py)",
        "configs": ", ".join(configs),
    }
    return ["", "| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows.items()), ""]


def regime_of(learner: type[Learner]) -> str:
    if learner.offline:
        return "offline" + (", can continue online" if learner.learns_online else "")
    return "on-policy" if hasattr(learner, "rollout_layout") else "off-policy, with a replay"


def proof_rows(name: str) -> tuple[list[str], list[list[str]]]:
    """The columns of benchmarks/results/README.md and the rows of one algorithm's proofs."""
    lines = (RESULTS / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines if line.startswith("| ")]
    head, own = rows[0], [row for row in rows[1:] if re.match(rf"\[{name}-", row[0])]
    return head, own


def results(name: str) -> list[str]:
    """The learning proofs with their curves, and the runs that were not finished."""
    head, rows = proof_rows(name)
    filled = {column for index, column in enumerate(head) if any(row[index] for row in rows)}
    columns = [column for column in COLUMNS if column in filled]
    lines = ["", "## Results", ""]
    if rows:
        lines += ["Greedy policy on fresh episodes, interquartile mean over seeds [interval]; how it was measured:"]
        lines += ["[learning proofs](../../benchmarks/results/README.md).", ""]
        lines += [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        cells = [row[head.index(column)] for column in columns]
        cells = [re.sub(r"\]\((\S+)\)", r"](../../benchmarks/results/\1)", cell) for cell in cells]
        lines.append(f"| {' | '.join(cells)} |")
    for proof in (re.match(r"\[(.+?)\]", row[0]) for row in rows):
        if proof is not None and (RESULTS / f"{proof[1]}.svg").exists():
            image, data = (f"../../benchmarks/results/{proof[1]}{suffix}" for suffix in (".svg", ".json"))
            lines += ["", f"![Evaluations of {proof[1]} over training]({image})", ""]
            lines += [f"{proof[1]}: evaluations during training ([numbers]({data}))."]
    unfinished = sorted(path.name for path in RESULTS.glob(f"{name}-*unfinished.json"))
    links = [f"[{file}](../../benchmarks/results/{file})" for file in unfinished]
    lines += ([] if rows else [NO_RESULTS]) + (["", f"Stopped before their end: {', '.join(links)}."] if links else [])
    return lines


def settings(name: str) -> list[str]:
    described = describe(learner_class(name).settings_type)
    config = "Fields of the config: [settings](../settings.md#the-config)."
    return ["", "## Settings", "", " ".join(sources(name)), config, "", *table(described.values())]


def code(learner: type[Learner]) -> list[str]:
    """The functions that the equations are about, as they are in the code."""
    phases = [name for name, value in vars(learner).items() if inspect.isfunction(value) and shown(name)]
    lines = ["", "## In code", ""]
    for parent in learner.__mro__[1:]:
        if parent.__name__ in {one.partition(":")[2] for one in ALGORITHMS.values()}:
            lines += [f"Everything that is not here is {parent.__name__}'s: [{parent.name}]({parent.name}.md).", ""]
            break
    for name in phases:
        source = textwrap.dedent(inspect.getsource(getattr(learner, name)))
        lines += ["```python", source.rstrip(), "```", ""]
    return lines if phases else [*lines, "The algorithm has settings of its own, and no code besides its parent's.", ""]


def shown(name: str) -> bool:
    """Whether a method is one of the losses, or a term of them."""
    return name.endswith(("loss", "term", "value", "error")) or name in (
        "targets", "target_update", "action_values", "smoothed_action", "sampled_values", "policy_result",
    )  # fmt: skip


def overview_page(text: str) -> str:
    """The list of all algorithms after the page's own text."""
    lines = [text.rstrip(), "", "## All algorithms", "", "| name | what | kind | actions | proofs reached |"]
    lines.append("|---|---|---|---|---|")
    for name in ALGORITHMS:
        learner, (head, rows) = learner_class(name), proof_rows(name)
        reached = [row[head.index("reached")] for row in rows]
        share = f"{reached.count('yes')} of {len(rows)}" if rows else "none yet"
        cells = (f"[{name}]({name}.md)", learner.title, regime_of(learner), ", ".join(learner.actions), share)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
