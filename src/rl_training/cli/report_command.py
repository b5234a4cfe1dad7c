"""`rl-training report`: the HTML report of any run in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_training.cli.arguments import Args, add_command, print_answer
from rl_training.core.checks import UserError


def add_report(subparsers: Any) -> None:
    text = "the HTML report of a run: finished, stopped, failed or running"
    report = add_command(subparsers, "report", run_report, text)
    report.add_argument("target", metavar="RUN", help="a run directory")
    report.add_argument("-o", "--output", metavar="FILE", help="by default report.html in the run directory")


def run_report(args: Args) -> int:
    path = _write(args)
    print_answer(args, {"report": str(path)}, f"report {path}")
    return 0


def _write(args: Args) -> Path:
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
    """The run directory of a path to a run or to one of its checkpoints."""
    if not path.exists():
        raise UserError(f"{path}: no such run")
    for directory in (path, path.absolute().parent.parent):
        if path.is_dir() and (directory / "run.json").is_file():
            return directory
    runs = sorted(one.parent.name for one in path.glob("*/run.json")) if path.is_dir() else []
    more = f" and {len(runs) - 3} more" if len(runs) > 3 else ""
    hint = f"; the runs in it are {', '.join(runs[:3])}{more}" if runs else ""
    raise UserError(f"{path}: not a run directory (it has no run.json){hint}")
