"""Parse, call, print. Results go to stdout, the rest to stderr; a mistake in the input is one line and exit 2."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import re
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rl_training.cli import commands
from rl_training.config.foreign_names import explain_unknown
from rl_training.config.train_config import FIELD_NAMES
from rl_training.core.checks import Note, UserError, did_you_mean, nearest, one_line
from rl_training.core.signals import NUMBERS, Stopped, StopSignals, stop_signals
from rl_training.core.version import __version__

SECONDS_TO_END = 1.0  # after a signal, once everything is saved

PARAMETERS = {"env_id": "env"}  # named otherwise on the command line than in Python


class Parser(argparse.ArgumentParser):
    """argparse with our kind of error."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words, left = self.parse_known_args(args, namespace)
        if left:
            # Not the refused word itself: where it stands before its command, the command does have it.
            refused = left[0].split("=")[0].lstrip("-")
            close = nearest(refused, [option for option in self._options_for(words) if option != refused])
            hint = f"; did you mean --{close}?" if close else self._setting_hint(left[0], refused, words)
            raise UserError(f"unrecognized arguments: {' '.join(left)}{hint}")
        return words

    def _setting_hint(self, given: str, refused: str, words: argparse.Namespace) -> str:
        """For a setting that was given as an option or without `--set`, perhaps by its name in another library."""
        if "set" not in self._options_for(words) or not (given.startswith("-") or "=" in given):
            return ""
        answer = explain_unknown(refused, FIELD_NAMES, None, "", in_settings=False)
        return f"{answer}; settings are given as --set NAME=VALUE"

    def error(self, message: str) -> NoReturn:
        hint = ""
        if "invalid choice: '" in message:
            word = message.split("invalid choice: '", 1)[1].split("'", 1)[0]
            hint = did_you_mean(word, [name for parser in self._subparsers_of() for name in parser.choices])
        raise UserError(f"{message}{hint}")

    def _options_for(self, words: argparse.Namespace) -> list[str]:
        """What may stand behind the command that `words` name, without the dashes, which all have in common."""
        parser = self._chosen(words)
        return [option.lstrip("-") for action in parser._actions for option in action.option_strings]

    def flags_for(self, words: argparse.Namespace) -> dict[str, str]:
        """The flag of each parameter that the command has one for."""
        actions = self._chosen(words)._actions
        return {action.dest: action.option_strings[-1] for action in actions if action.option_strings}

    def _chosen(self, words: argparse.Namespace) -> Parser:
        """The parser of the command that `words` name."""
        for action in self._subparsers_of():
            chosen = action.choices.get(getattr(words, action.dest))
            if chosen is not None:
                return chosen._chosen(words)
        return self

    def _subparsers_of(self) -> list[argparse._SubParsersAction[Parser]]:
        return [action for action in self._actions if isinstance(action, argparse._SubParsersAction)]


def build_parser() -> Parser:
    parser = Parser(prog="rl-training", description="Train, evaluate, run and resume reinforcement-learning agents.")
    parser.add_argument("--version", action="version", version=f"rl-training {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    commands.add_all(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 the run failed, 2 wrong input, 130/143 stopped and saved."""
    for stream in (sys.stdout, sys.stderr):
        every_text = "utf" in (getattr(stream, "encoding", None) or "") and stream.errors != "strict"
        if hasattr(stream, "reconfigure") and not every_text:
            stream.reconfigure(errors="backslashreplace")  # a path may hold what the terminal cannot show
    with stop_signals(program=True) as signals:
        return _run(argv, signals)


def _run(argv: Sequence[str] | None, signals: StopSignals) -> int:
    flags: dict[str, str] = {}
    try:
        parser = build_parser()
        arguments = parser.parse_args(argv)
        flags = parser.flags_for(arguments)
        if arguments.command is None:
            parser.print_help()
            return 0
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            return int(arguments.run(arguments) or 0)
    except Stopped as stop:
        signals.obeyed = True
        signals.report(str(stop))
        return 128 + stop.number
    except SystemExit as leaving:
        if not flags:  # --help and --version
            return int(leaving.code or 0)
        print(f"error: the environment ended the program (SystemExit: {one_line(leaving)})", file=sys.stderr)
        return 1
    except UserError as error:
        for line in in_flags(str(error), flags).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`| head`): keep the interpreter from complaining about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        code = commands.exit_code_of(error)
        if code is None and error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return code or 2
    except Exception as error:
        code = commands.exit_code_of(error)
        if code is None:
            raise
        print(f"{'error: ' if code == 1 else ''}{in_flags(str(error), flags)}", file=sys.stderr)
        return code


def in_flags(text: str, flags: Mapping[str, str]) -> str:
    """A message of the library, which names parameters as in Python (`force=True`), in the words of a command.

    What the command has no flag for stays as it is: it can be done in Python or in a config alone.
    """

    def flag(found: re.Match[str]) -> str:
        name = PARAMETERS.get(found[1], found[1])
        return flags.get(name, found[0])

    return re.sub(r"(?<![^\s(])([a-z_]+)=(?:True|\.\.\.)(?![\w.])", flag, text)


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    text = str(message) if issubclass(category, Note) else warnings.formatwarning(message, category, filename, lineno)
    print(text.rstrip(), file=sys.stderr)


def entry_point() -> Any:
    code = main(sys.argv[1:])
    if code in (128 + number for number in NUMBERS):
        _end_soon(code)
    sys.exit(code)


def _end_soon(code: int) -> NoReturn:
    """Python would wait for compilers that are still at work, and take seconds to free what torch has."""
    last = threading.Timer(SECONDS_TO_END, os._exit, (code,))
    last.daemon = True
    last.start()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
