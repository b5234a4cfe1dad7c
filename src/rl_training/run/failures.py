"""How a run that fails ends: its record shows the reason, and the error reaches the caller."""

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
from rl_training.run.artifacts import write_report_if_wanted
from rl_training.run.capacity import shortage
from rl_training.run.session import TrainingFailure


@contextmanager
def recorded_failures(config: TrainConfig, run_dir: Path, record: RunRecord) -> Iterator[None]:
    """Records why training raises, if it does; a run that ends here, failed or stopped half way, gets a report."""
    try:
        with _recorded(run_dir, record):
            yield
    except BaseException:
        if record.begun and record.values["status"] != "running":
            with deferred():
                write_report_if_wanted(config, run_dir)
        raise


@contextmanager
def _recorded(run_dir: Path, record: RunRecord) -> Iterator[None]:
    """Marks the run as failed if its training raises; a foreseen failure is one line, any other keeps its traceback.

    A resume that is rejected before the run has begun again leaves the record as it is.
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
        what = None
        if isinstance(error, (OSError, MemoryError, RuntimeError)) and record.hook is None:
            what = shortage(error, run_dir)
        if what is not None or record.begun:
            where = f"callback {record.hook}: " if record.hook else ""
            with suppress(OSError):
                record.end("failed", failure=what or where + _named(error))
        if what is None:
            raise
        raise TrainingFailure(what) from error


def _named(error: BaseException) -> str:
    words = one_line(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def report_hang(failure: EnvironmentFailure, config: TrainConfig, run_dir: Path, record: RunRecord) -> None:
    print(f"error: {_report_failure(failure, run_dir, record)}", file=sys.stderr, flush=True)
    write_report_if_wanted(config, run_dir)


def _report_failure(failure: EnvironmentFailure, run_dir: Path, record: RunRecord) -> str:
    replace_file(run_dir / "crash.json", to_json(finite(failure.report), indent=1))
    record.end("failed", failure=str(failure))
    return f"{failure}; {run_dir / 'crash.json'} reproduces it"
