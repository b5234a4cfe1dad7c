"""The argument parser, and arguments shared by several commands."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from rl_training.config.foreign_names import explain_unknown
from rl_training.config.train_config import FIELD_NAMES
from rl_training.core.checks import UserError, did_you_mean, nearest

Args = argparse.Namespace
Command = Callable[[Args], int]


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are `UserError` with suggestions."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            # Without the rejected option itself, which may be valid but given before its command.
            rejected = unknown[0].split("=")[0].lstrip("-")
            close = nearest(rejected, [option for option in self._options_for(parsed) if option != rejected])
            hint = f"; did you mean --{close}?" if close else self._setting_hint(unknown[0], rejected, parsed)
            raise UserError(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed

    def _setting_hint(self, given: str, rejected: str, args: Args) -> str:
        """A hint for a setting given as an option or without `--set`, perhaps by its name in another library."""
        if "set" not in self._options_for(args) or not (given.startswith("-") or "=" in given):
            return ""
        if not given.startswith("-") and args.overrides:  # several behind one --set
            return f"; each setting needs its own --set: --set {given}"
        answer = explain_unknown(rejected, FIELD_NAMES, None, "", in_settings=False)
        return f"{answer}; settings are given as --set NAME=VALUE"

    def error(self, message: str) -> NoReturn:
        hint = ""
        if "invalid choice: '" in message:
            choice = message.split("invalid choice: '", 1)[1].split("'", 1)[0]
            hint = did_you_mean(choice, [name for action in self._subparser_actions() for name in action.choices])
        raise UserError(f"{message}{hint}")

    def _options_for(self, args: Args) -> list[str]:
        """The options of the command in `args`, without dashes."""
        actions = self.command_parser(args)._actions
        return [option.lstrip("-") for action in actions for option in action.option_strings]

    def flags_for(self, args: Args) -> dict[str, str]:
        """The flag of each parameter of the command in `args`."""
        actions = self.command_parser(args)._actions
        return {action.dest: action.option_strings[-1] for action in actions if action.option_strings}

    def command_parser(self, args: Args) -> Parser:
        """The parser of the command in `args`."""
        for action in self._subparser_actions():
            chosen = action.choices.get(getattr(args, action.dest))
            if chosen is not None:
                return chosen.command_parser(args)
        return self

    def _subparser_actions(self) -> list[argparse._SubParsersAction[Parser]]:
        return [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]

    def print_help_by_default(self) -> None:
        """Without a command, print the help."""

        def run(args: Args) -> int:
            self.print_help()
            return 0

        self.set_defaults(run=run)


def add_command(subparsers: Any, name: str, run: Command, text: str) -> Parser:
    """Add a command that calls `run` with its arguments; `text` is its help."""
    parser: Parser = subparsers.add_parser(name, help=text, description=text)
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(run=run)
    return parser


def add_agent(parser: Parser) -> None:
    """Add the arguments that name a trained agent; `agent_path` reads them."""
    parser.add_argument("target", nargs="?", metavar="PATH", help="an agent file, a checkpoint or a run directory")
    parser.add_argument("--checkpoint", metavar="PATH", help="the same, as an option")
    parser.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:1 (default %(default)s)")
    add_objects(parser)


def add_objects(parser: Parser) -> None:
    """Add `--object`; `named_objects` imports what it names."""
    text = "a class or function of yours, e.g. network.features=my_module:MyFeatures; resumes need it again"
    metavar = "SETTING=module:Name"
    parser.add_argument("--object", action="append", default=[], metavar=metavar, dest="objects", help=text)


def agent_path(args: Args) -> Path:
    """The path given as an argument or as `--checkpoint`."""
    given = [path for path in (args.target, args.checkpoint) if path is not None]
    if len(given) != 1:
        raise UserError("exactly one path is needed: an agent file, a checkpoint or a run directory")
    return Path(given[0])


def add_episode_limit(parser: Parser) -> None:
    """Add `--episode-limit`, for environments without a time limit."""
    text = "cut an episode after N steps (default: the config's eval_episode_limit, without a time limit)"
    parser.add_argument("--episode-limit", type=whole_number, metavar="N", help=text)


def add_cleaning_flags(parser: Parser, clip_help: str | None = None) -> None:
    """Add the flags that clean a dataset; `--clip-actions` only where the bounds of actions are known."""
    parser.add_argument("--drop-nonfinite", action="store_true", help="drop rows with NaN or infinity")
    if clip_help is not None:
        parser.add_argument("--clip-actions", action="store_true", help=clip_help)


def whole_number(text: str) -> int:
    """An integer from the command line; `1e6` is one too."""
    try:
        number = float(text)
        if number != int(number):
            raise ValueError
        return int(text) if text.lstrip("+-").isdigit() else int(number)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def print_answer(args: Args, answer: Any, text: str) -> None:
    """Print the answer of a command: as text, or as JSON with `--json`."""
    print(json.dumps(answer, default=str) if args.json else text)
