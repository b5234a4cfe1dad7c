"""The end of a run: records it as finished or stopped, writes artifacts, and completes exceptions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.checkpoint.read import Checkpoint
from rl_training.core.results import TrainResult
from rl_training.core.signals import Stopped
from rl_training.files.run_directory import RunRecord
from rl_training.run.artifacts import pending_artifacts, write_report_if_enabled
from rl_training.run.session import Session, TrainingFailure


def conclude(session: Session) -> TrainResult:
    """Record the end of a run, inside `deferred`, and write its artifacts; raises `Stopped` after a signal."""
    assert session.saver.newest is not None
    signals = session.signals
    signals.on_give_up = lambda: None  # from here on only this function writes the record
    metrics: dict[str, Any] = {
        "global_step": session.step,
        "gradient_steps": session.gradient_steps,
        **session.evaluation_metrics(),
    }
    result = TrainResult(session.run_dir, session.saver.newest.path, metrics)
    finished = session.step >= session.total and not session.evaluation_due
    session.record.end("finished" if finished else "stopped", metrics=metrics, elapsed=round(session.elapsed, 3))
    if finished:
        _write_artifacts(session, result)
    else:
        write_report_if_enabled(session.config, session.run_dir)
    if signals.received is not None and not finished:
        raise Stopped.by(signals.received, f"; saved in {result.run_dir}", result)
    if session.failed:
        raise TrainingFailure(f"failed seeds: {', '.join(session.failed)}; the others finished in {session.run_dir}")
    return result


def _write_artifacts(session: Session, result: TrainResult) -> None:
    """Write the artifacts of a finished run; after a signal, the exception names those that are missing."""
    pending = pending_artifacts(session)
    try:
        for name, write in list(pending.items()):
            write()
            del pending[name]
        session.signals.check()
    except Stopped as stop:
        session.signals.stopping = True
        missing = f", its {' and '.join(pending)} {'is' if len(pending) == 1 else 'are'} missing" if pending else ""
        stop.describe(f"; the run is finished in {result.run_dir}{missing}", result)
        raise


def mark_interrupted(stop: Stopped, run_dir: Path, record: RunRecord, newest: Checkpoint | None) -> None:
    """Mark a run as stopped in the middle of a step: nothing was saved after its newest checkpoint."""
    mark_stopped(record)
    if newest is None:
        stop.describe(f" before the first checkpoint; resume starts {run_dir} again")
    else:
        result = TrainResult(run_dir, newest.path, {"global_step": newest.step})
        stop.describe(f"; {run_dir} is as it was saved at step {newest.step}", result)


def mark_stopped(record: RunRecord) -> None:
    if record.values["status"] == "running":  # else it had not begun, and its record is unchanged
        record.end("stopped")
