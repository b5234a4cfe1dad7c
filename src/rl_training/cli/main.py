"""The command line: parses arguments and runs commands. Results go to stdout, everything else to stderr."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any, NoReturn

from rl_training.cli.agent_commands import add_evaluate, add_predict, add_record
from rl_training.cli.arguments import Parser
from rl_training.cli.compare_command import add_compare
from rl_training.cli.data_commands import add_data
from rl_training.cli.demo import add_demo
from rl_training.cli.describe_command import add_describe
from rl_training.cli.doctor import add_doctor
from rl_training.cli.errors import report_error
from rl_training.cli.export_commands import add_export, add_verify
from rl_training.cli.hub_commands import add_pull, add_push
from rl_training.cli.import_command import add_import
from rl_training.cli.list_command import add_list
from rl_training.cli.report_command import add_report, add_watch
from rl_training.cli.run_commands import add_resume, add_train
from rl_training.cli.serve_command import add_serve
from rl_training.cli.study_commands import add_sweep, add_tune
from rl_training.core.checks import Note
from rl_training.core.signals import NUMBERS, stop_signals
from rl_training.core.version import __version__

COMMANDS = (
    add_train, add_resume, add_evaluate, add_predict, add_record, add_report, add_watch, add_compare, add_sweep,
    add_tune, add_export, add_verify, add_serve, add_import, add_push, add_pull, add_data, add_list, add_describe,
    add_doctor, add_demo,
)  # fmt: skip
EXIT_SECONDS = 1.0  # limit of cleanup at exit after a signal, when everything is saved


def build_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(prog="rl-training", description="Train, evaluate, run and resume reinforcement-learning agents.")
    parser.add_argument("--version", action="version", version=f"rl-training {__version__}")
    parser.print_help_by_default()
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for add in COMMANDS:
        add(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 failed run, 2 invalid input, 130/143 stopped."""
    _allow_any_path()
    flags: dict[str, str] = {}
    with stop_signals(program=True) as signals:
        try:
            parser = build_parser()
            args = parser.parse_args(argv)
            flags = parser.flags_for(args)
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return int(args.run(args))
        except BaseException as error:  # a signal too
            code = report_error(error, flags, signals)
            if code is None:
                raise
            return code


def _allow_any_path() -> None:
    """Escape characters of paths that the terminal cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        any_text = "utf" in (getattr(stream, "encoding", None) or "") and stream.errors != "strict"
        if hasattr(stream, "reconfigure") and not any_text:
            stream.reconfigure(errors="backslashreplace")


def _show_warning(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    text = str(message) if issubclass(category, Note) else warnings.formatwarning(message, category, filename, lineno)
    print(text.rstrip(), file=sys.stderr)


def entry_point() -> Any:
    """The program `rl-training`."""
    code = main(sys.argv[1:])
    if code in (128 + number for number in NUMBERS):
        _exit_soon(code)
    sys.exit(code)


def _exit_soon(code: int) -> NoReturn:
    """Exit without waiting for running compilers and for torch to free its memory, which takes seconds."""
    timer = threading.Timer(EXIT_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
