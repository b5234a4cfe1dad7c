"""Errors of commands: the line that reports them, and the exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from rl_training.core.checks import UserError, one_line
from rl_training.core.signals import Stopped, StopSignals

FLAG_NAMES = {"env_id": "env"}  # parameters whose flag has another name


def report_error(error: BaseException, flags: Mapping[str, str], signals: StopSignals) -> int | None:
    """Report an error of a command and return its exit code; None for a bug of the library, to be raised again."""
    if isinstance(error, Stopped):
        signals.stopping = True
        signals.report(str(error))
        return 128 + error.number
    if isinstance(error, SystemExit):
        if not flags:  # --help and --version
            return int(error.code or 0)
        print(f"error: the environment ended the program (SystemExit: {one_line(error)})", file=sys.stderr)
        return 1
    if isinstance(error, UserError):
        for line in in_flags(error.message, flags).splitlines():
            print(f"error: {line}", file=sys.stderr)
        for line in error.code:
            print(line, file=sys.stderr)
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        print("interrupted", file=sys.stderr)
        return 130
    if isinstance(error, BrokenPipeError):
        # The reader closed the pipe (`| head`): keep the interpreter from reporting it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, OSError):
        return _report_os_error(error)
    if _is_failed_run(error):
        print(f"error: {in_flags(str(error), flags)}", file=sys.stderr)
        return 1
    return None


def _report_os_error(error: OSError) -> int | None:
    from rl_training.files.atomic import DISK_ERRORS

    disk = error.errno in DISK_ERRORS
    if not disk and error.filename is None:
        return None
    where = f"{error.filename}: " if error.filename is not None else ""
    print(f"error: {where}{error.strerror}", file=sys.stderr)
    return 1 if disk else 2


def _is_failed_run(error: BaseException) -> bool:
    from rl_training.envs.host.vector import EnvironmentFailure
    from rl_training.run.session import TrainingFailure

    return isinstance(error, (TrainingFailure, EnvironmentFailure))


def in_flags(text: str, flags: Mapping[str, str]) -> str:
    """A message of the library with parameters as in Python (`force=True`) replaced by the command's flags.

    A parameter without a flag is left: it can only be given in Python or in a config.
    """

    def flag(found: re.Match[str]) -> str:
        name = FLAG_NAMES.get(found[1], found[1])
        return flags.get(name, found[0])

    return re.sub(r"(?<![^\s(])([a-z_]+)=(?:True|\.\.\.)(?![\w.])", flag, text)
