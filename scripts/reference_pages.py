"""The command and API references of the site, from the parser of the command line and the docstrings of the code."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from rl_training.algorithms.registry import class_names
from rl_training.cli.main import build_parser

COMMANDS_HEAD = """\
# Command line

Every command with its arguments, as `rl-training COMMAND --help` shows them. Results go to stdout, everything else to
stderr. Exit codes are 0, 1 (a run or a check failed), 2 (invalid input, in one line), 130 and 143 (stopped by SIGINT
and SIGTERM, and saved). `python -m rl_training` is the same program. Examples: [usage](usage.md#command-line).
"""
API_HEAD = """\
# Python

The public names with their signatures. A class per algorithm, `rl_training.SAC` and the others, is a
[ManagedAlgorithm](#managedalgorithm) whose keywords are fields of the config and [settings](settings.md) of the
algorithm. Names that start with an underscore, and modules that are not here, may change without notice.
"""
# Modules in the order of the page; without names, those of `__all__`. The classes of algorithms are one entry.
MODULES: dict[str, tuple[str, ...]] = {
    "rl_training": (),
    "rl_training.cli": ("load_config", "main"),
    "rl_training.data": (),
    "rl_training.api": ("managed_class",),
    "rl_training.runtime.workflows": ("evaluate_checkpoint", "predict_checkpoint", "resume_training"),
    "rl_training.experiment.registry": ("get_algorithm_spec",),
    "rl_training.experiment.default_manager": ("DefaultExperimentManager",),
    "rl_training.studies.compare": ("collect", "compare"),
    "rl_training.studies.page": ("write_page",),
    "rl_training.studies.optuna_callback": ("OptunaPruning",),
    "rl_training.deploy.sb3": ("import_sb3",),
    "rl_training.envs.base": ("VectorEnv", "Step"),
    "rl_training.envs.device.base": ("DeviceEnv",),
    "rl_training.core.specs": ("ArraySpec", "EnvSpec"),
    "rl_training.algorithms.definition": ("Algorithm",),
    "rl_training.engine.phases": ("Phase", "LossResult"),
}


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's commands by name."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def option_row(action: argparse.Action) -> str:
    shown = action.metavar if isinstance(action.metavar, str) else (action.dest.upper() if action.nargs != 0 else "")
    if action.choices is not None and action.metavar is None:
        shown = "{" + ",".join(map(str, action.choices)) + "}"
    names = ", ".join(f"`{name}{f' {shown}' if shown else ''}`" for name in action.option_strings) or f"`{shown}`"
    text = (action.help or "") % {**vars(action), "prog": "rl-training"}
    return f"| {names.replace('|', chr(92) + '|')} | {escaped(text)} |"


def command(name: str, parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    usage = textwrap.fill(usage, 88, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    yield from ("", f"{'#' * level} {name}", "", escaped(parser.description or ""), "", "```text", usage, "```", "")
    actions = [one for one in parser._actions if one.help != argparse.SUPPRESS and one.dest not in ("help", "command")]
    rows = [option_row(one) for one in actions if not isinstance(one, argparse._SubParsersAction)]
    if rows:
        yield from ("| argument | meaning |", "|---|---|", *rows)
    for below, parser_below in subcommands(parser).items():
        yield from command(f"{name} {below}", parser_below, level + 1)


def command_page() -> str:
    lines = [COMMANDS_HEAD]
    for name, parser in subcommands(build_parser()).items():
        lines += command(name, parser, 2)
    return "\n".join(lines) + "\n"


def api_page() -> str:
    lines = [API_HEAD]
    for module_name, names in MODULES.items():
        module = importlib.import_module(module_name)
        lines += ["", f"## {module_name}", "", first_paragraph(module)]
        algorithms = [name for name in names or module.__all__ if name in class_names()]
        if algorithms:
            links = (f"[{name}](algorithms/{class_names()[name]}.md)" for name in algorithms)
            lines += ["", f"The algorithms: {', '.join(links)}."]
        for name in names or module.__all__:
            if name not in algorithms and not name.startswith("__"):
                lines += entry(name, getattr(module, name))
    return "\n".join(lines) + "\n"


def entry(name: str, thing: Any) -> Iterator[str]:
    yield from ("", f"### {name}", "", *signature(name, thing), *documentation(thing))
    if inspect.isclass(thing):
        for member, value in members(thing):
            if isinstance(value, property):
                yield from ("", f"**`{name}.{member}`** (property)", "", *documentation(value))
            else:
                function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
                yield from ("", *signature(f"{name}.{member}", function), *documentation(function))


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class defines itself and documents."""
    for name, value in vars(cls).items():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield name, value


def signature(name: str, thing: Any) -> list[str]:
    try:
        found = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return []
    found = re.sub(r"(\bself\b(: [\w\[\]\"']+)?|\bcls\b(: [\w\[\]\"']+)?)(, )?", "", found, count=1)
    text = f"{name}{found}".replace("'", "")
    if len(text) > 88:  # one argument per line
        head, _, rest = text.partition("(")
        inside, _, tail = rest.rpartition(")")
        text = f"{head}(\n" + "".join(f"    {part},\n" for part in arguments(inside)) + f"){tail}"
    return ["```python", text, "```", ""]


def arguments(text: str) -> list[str]:
    """The arguments of a signature: split at commas that are not in brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def documentation(thing: Any) -> list[str]:
    text = inspect.getdoc(thing) or ""
    return ["" if text.startswith("Built-in") else text.replace("<", "&lt;"), ""]


def first_paragraph(module: Any) -> str:
    return (inspect.getdoc(module) or "").partition("\n\n")[0].replace("<", "&lt;")
