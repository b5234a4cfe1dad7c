"""Messages name parameters as in Python; only the command line speaks of flags."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import rl_training
from rl_training.cli.errors import in_flags
from rl_training.cli.main import build_parser

SOURCE = Path(rl_training.__file__).parent
OF_THE_COMMAND_LINE = {
    ("config/overrides.py", "--set"),  # which reads that flag and nothing else
    # Commands that are started, or shown to be repeated; and a variable of a style sheet.
    *(("studies/estimate.py", flag) for flag in ("--config", "--quiet")),
    *(("studies/process.py", flag) for flag in ("--config", "--quiet")),
    *(("studies/slurm_launcher.py", flag) for flag in ("--format", "--jobs")),
    ("report/page.py", "--config"),
    ("report/style.py", "--page"),
}


def flags_of(parser: argparse.ArgumentParser) -> set[str]:
    flags = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    below = [one for action in parser._actions if isinstance(action, argparse._SubParsersAction)
             for one in action.choices.values()]  # fmt: skip
    return flags.union(*map(flags_of, below)) if below else flags


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every string of a module that is not a docstring, f-strings in their constant parts."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body
        and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def test_no_flag_reaches_a_python_user() -> None:
    flags = flags_of(build_parser())
    assert {"--force", "--data", "--clip-actions", "--total-timesteps"} <= flags
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(flags)))})(?![\w-])")
    found = {
        (str(path.relative_to(SOURCE)), flag): line
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] != "cli"
        for line, text in texts(path)
        for flag in pattern.findall(text)
    }
    assert {place: line for place, line in found.items() if place not in OF_THE_COMMAND_LINE} == {}


def test_every_parameter_in_a_message_has_a_flag_or_is_known_to_have_none() -> None:
    """A renamed flag would leave a command's message with the parameter's name."""
    only_in_python = {"env_factory", "dataset"}
    commands = (
        build_parser().command_parser(argparse.Namespace(command="resume")),
        build_parser().command_parser(argparse.Namespace(command="train")),
        build_parser().command_parser(argparse.Namespace(command="compare")),
        build_parser().command_parser(argparse.Namespace(command="tune")),
    )
    dests = {action.dest for command in commands for action in command._actions}
    named = {
        name
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] not in ("cli", "assets")
        for _, text in texts(path)
        for name in re.findall(r"(?<![^\s(])([a-z_]+)=(?:True|\.\.\.)(?![\w.])", text)
    }
    assert {"force", "data", "output_dir", "env_id", "clip_actions", "drop_nonfinite"} <= named
    assert named - only_in_python - dests == {"env_id"}  # the command line calls it --env


def test_the_command_line_words_parameters_as_its_flags() -> None:
    parser = build_parser()
    flags = parser.flags_for(parser.parse_args(["resume", "RUN"]))
    said = "x; force=True resumes; name it with data=... (env_id=...), clip_actions=True; a path=True.npz, force=True1"
    answer = in_flags(said, flags)
    assert answer == "x; --force resumes; name it with --data (--env), clip_actions=True; a path=True.npz, force=True1"
    data = parser.flags_for(parser.parse_args(["data", "show", "x.npz"]))
    assert in_flags("leave them out with drop_nonfinite=True", data) == "leave them out with --drop-nonfinite"
