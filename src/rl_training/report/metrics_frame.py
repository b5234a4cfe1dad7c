"""The metrics of a run as a pandas frame."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError, shown
from rl_training.files.json_lines import ROW_KEYS
from rl_training.report.run_data import merged_rows


def load_metrics(run: Any) -> Any:
    """A pandas frame of a finished, running or killed run: a row for each step and seed, a column for each metric.

    `run` is a run directory, or an agent or a result that has one. Needs pandas.
    """
    try:
        import pandas
    except ImportError as error:
        raise UserError("load_metrics needs pandas; pip install 'rl-training[pandas]'") from error
    found = getattr(run, "run_dir", run)
    if not isinstance(found, (str, Path)):
        raise UserError(f"load_metrics needs a run directory, or an agent that was trained, got {shown(run)}")
    path = Path(found)
    if not (path / "run.json").is_file() and not (path / "metrics.jsonl").is_file():
        raise UserError(f"{path}: no such run")
    frame = pandas.DataFrame(merged_rows(path / "metrics.jsonl"))
    for name in ROW_KEYS:
        frame[name] = frame[name].astype("int64") if name in frame else pandas.Series(dtype="int64")
    return frame[[*ROW_KEYS, *(name for name in frame if name not in ROW_KEYS)]]
