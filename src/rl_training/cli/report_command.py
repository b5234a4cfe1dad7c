"""`rl-training report`: the one-file HTML report of any run, and the summary line of a finished one."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError
from rl_training.core.statistics import headline, summarize


def report_of(args: argparse.Namespace) -> Path:
    """Write the report of a run in whatever state it is and return its path."""
    from rl_training.report.page import write_report

    run_dir = _run_directory(Path(args.target))
    output = Path(args.output) if args.output is not None else None
    try:
        return write_report(run_dir, output)
    except OSError as error:
        elsewhere = "; -o FILE writes it elsewhere" if output is None else ""
        raise UserError(
            f"{output or run_dir / 'report.html'}: cannot be written ({error.strerror}){elsewhere}"
        ) from error


def _run_directory(path: Path) -> Path:
    """The run itself, or that of one of its checkpoints."""
    if not path.exists():
        raise UserError(f"{path}: no such run")
    for place in (path, path.absolute().parent.parent):
        if path.is_dir() and (place / "run.json").is_file():
            return place
    held = sorted(one.parent.name for one in path.glob("*/run.json")) if path.is_dir() else []
    more = f" and {len(held) - 3} more" if len(held) > 3 else ""
    hint = f"; the runs in it are {', '.join(held[:3])}{more}" if held else ""
    raise UserError(f"{path}: not a run directory (it has no run.json){hint}")


def return_line(metrics: dict[str, Any]) -> str | None:
    """What the last evaluation of a run came to, if there was one."""
    means = metrics.get("eval_return_means")
    if not means:
        return None
    if len(means) > 1:
        return headline(summarize(means))
    return (
        f"{metrics['eval_return_mean']:.1f} +- {metrics['eval_return_std']:.1f} "
        f"({metrics['eval_episodes']} episodes), best {metrics['best_eval_return_mean']:.1f}"
    )
