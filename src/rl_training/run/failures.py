"""Failures of a run: recorded in run.json with their reason, and raised to the caller."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import one_line
from rl_training.core.signals import Stopped, deferred
from rl_training.envs.host.vector import EnvironmentFailure
from rl_training.files.atomic import finite, replace_file, to_json
from rl_training.files.run_directory import RunRecord
from rl_training.run.artifacts import write_report_if_enabled
from rl_training.run.capacity import resource_error
from rl_training.run.session import TrainingFailure


@contextmanager
def recorded_failures(config: TrainConfig, run_dir: Path, record: RunRecord) -> Iterator[None]:
    """Record an exception of training in the run's record, and write the report of the failed or stopped run."""
    try:
        with _recorded(run_dir, record):
            yield
    except BaseException:
        if record.begun and record.values["status"] != "running":
            with deferred():
                write_report_if_enabled(config, run_dir)
        raise


@contextmanager
def _recorded(run_dir: Path, record: RunRecord) -> Iterator[None]:
    """Mark the run as failed if training raises; expected failures become one line, others keep their traceback.

    A resume that is rejected before training leaves the record unchanged.
    """
    try:
        yield
    except EnvironmentFailure as failure:
        raise TrainingFailure(_report_failure(failure, run_dir, record)) from failure
    except TrainingFailure as failure:
        record.end("failed", failure=str(failure))
        raise
    except Stopped:
        raise
    except BaseException as error:  # a SystemExit or KeyboardInterrupt of a callback or an environment, too
        reason = None
        if isinstance(error, (OSError, MemoryError, RuntimeError)) and record.hook is None:
            reason = resource_error(error, run_dir)
        if reason is not None or record.begun:
            where = f"callback {record.hook}: " if record.hook else ""
            with suppress(OSError):
                record.end("failed", failure=reason or where + _named(error))
        if record.hook is not None:
            print(f"error: callback {record.hook}: {_named(error)}; the run is in {run_dir}", file=sys.stderr)
        if reason is None:
            raise
        raise TrainingFailure(reason) from error


def _named(error: BaseException) -> str:
    message = one_line(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def report_hang(failure: EnvironmentFailure, config: TrainConfig, run_dir: Path, record: RunRecord) -> None:
    """Report an environment that hangs, before the process is ended."""
    print(f"error: {_report_failure(failure, run_dir, record)}", file=sys.stderr, flush=True)
    write_report_if_enabled(config, run_dir)


def _report_failure(failure: EnvironmentFailure, run_dir: Path, record: RunRecord) -> str:
    replace_file(run_dir / "crash.json", to_json(finite(failure.report), indent=1))
    record.end("failed", failure=str(failure))
    return f"{failure}; {run_dir / 'crash.json'} reproduces it"
