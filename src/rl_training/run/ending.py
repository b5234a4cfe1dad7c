"""The end of a run: finished or stopped, what its record says of it, and what an exception tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.checkpoint.read import Checkpoint
from rl_training.core.results import TrainResult
from rl_training.core.signals import Stopped
from rl_training.files.run_directory import RunRecord
from rl_training.run.artifacts import wanted_files, write_report_if_wanted
from rl_training.run.session import Session, TrainingFailure


def conclude(session: Session) -> TrainResult:
    """Record the end of a run, inside `deferred`, and write what it leaves to look at; `Stopped` if a signal came."""
    assert session.saver.newest is not None
    signals = session.signals
    signals.on_give_up = lambda: None  # from here on the record is written here alone
    metrics: dict[str, Any] = {
        "global_step": session.step,
        "gradient_steps": session.gradient_steps,
        **session.evaluation_metrics(),
    }
    result = TrainResult(session.run_dir, session.saver.newest.path, metrics)
    finished = session.step >= session.total and not session.evaluation_due
    session.record.end("finished" if finished else "stopped", metrics=metrics, elapsed=round(session.elapsed, 3))
    if finished:
        _write_wanted(session, result)
    else:
        write_report_if_wanted(session.config, session.run_dir)
    if signals.received is not None and not finished:
        raise Stopped.by(signals.received, f"; saved in {result.run_dir}", result)
    if session.failed:
        raise TrainingFailure(f"failed seeds: {', '.join(session.failed)}; the others finished in {session.run_dir}")
    return result


def _write_wanted(session: Session, result: TrainResult) -> None:
    """The video and the report of a finished run; a signal ends that, and its exception names what is missing."""
    wanted = wanted_files(session)
    try:
        for name, write in list(wanted.items()):
            write()
            del wanted[name]
        session.signals.check()
    except Stopped as stop:
        session.signals.stopping = True
        missing = f", its {' and '.join(wanted)} {'is' if len(wanted) == 1 else 'are'} missing" if wanted else ""
        stop.describe(f"; the run is finished in {result.run_dir}{missing}", result)
        raise


def stopped_half_way(stop: Stopped, run_dir: Path, record: RunRecord, newest: Checkpoint | None) -> None:
    """Something was half done, so nothing new was saved: the run stands where its newest checkpoint is."""
    mark_stopped(record)
    if newest is None:
        stop.describe(f" before the first checkpoint; resume starts {run_dir} again")
    else:
        result = TrainResult(run_dir, newest.path, {"global_step": newest.step})
        stop.describe(f"; {run_dir} is as it was saved at step {newest.step}", result)


def mark_stopped(record: RunRecord) -> None:
    if record.values["status"] == "running":  # else it was not begun, and is what it was
        record.end("stopped")
