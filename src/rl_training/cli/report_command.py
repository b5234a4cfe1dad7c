"""`rl-training report`: the HTML report of a run or of many in one file; `rl-training watch`: a run in a terminal."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import Args, add_command, print_answer
from rl_training.core.checks import UserError

if TYPE_CHECKING:
    from rl_training.report.run_data import Run

WATCH_SECONDS = 10.0
POLL_SECONDS = 0.5


def add_report(subparsers: Any) -> None:
    text = "the HTML report of a run (finished, stopped, failed or running), or of a study of many"
    report = add_command(subparsers, "report", run_report, text)
    report.add_argument("targets", nargs="+", metavar="RUN", help="run directories, or folders of them")
    text = "by default report.html in the run directory, or in the one folder of runs"
    report.add_argument("-o", "--output", metavar="FILE", help=text)
    text = "write it again every few seconds until training ends; a browser that has it open follows"
    report.add_argument("--watch", action="store_true", help=text)
    report.add_argument("--every", type=_seconds, default=WATCH_SECONDS, metavar="S", help="with --watch (default 10)")


def add_watch(subparsers: Any) -> None:
    text = "follow a run in the terminal: its progress and evaluations, until it ends"
    watch = add_command(subparsers, "watch", run_watch, text)
    watch.add_argument("target", metavar="RUN", help="a run directory")
    text = "seconds between looks at its files (default 0.5)"
    watch.add_argument("--every", type=_seconds, default=POLL_SECONDS, metavar="S", help=text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
        if not 0.05 <= value <= 86_400:
            raise ValueError
        return value
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.05 to 86400") from None


def run_report(args: Args) -> int:
    targets = [_run_or_folder(Path(target)) for target in args.targets]
    output = Path(args.output) if args.output is not None else _default_output(targets)
    try:
        while args.watch and _running(targets):
            _write(targets, output, args.every)
            time.sleep(args.every)
        problems = _write(targets, output, None)
    except OSError as error:
        elsewhere = "; -o FILE writes it elsewhere" if args.output is None else ""
        raise UserError(f"{output}: cannot be written ({error.strerror}){elsewhere}") from error
    answer = {"report": str(output), **({"problems": problems} if problems else {})}
    print_answer(args, answer, f"report {output}")
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _write(targets: list[Path], output: Path, refresh: float | None) -> list[str]:
    """Write the page; returns a line for each run that is left out."""
    if len(targets) == 1 and (targets[0] / "run.json").is_file():
        from rl_training.report.page import write_report

        write_report(targets[0], output, refresh)  # even of a run without evaluations
        return []
    from rl_training.studies.page import write_page

    return write_page(targets, output, refresh)


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


def _run_or_folder(path: Path) -> Path:
    """A run directory, or a folder with some in it."""
    if not (path / "run.json").is_file() and next(path.rglob("run.json"), None) is not None:
        return path
    return _run_directory(path)


def _default_output(targets: list[Path]) -> Path:
    if len(targets) > 1:
        raise UserError("the report of several runs needs -o FILE")
    return targets[0] / "report.html"


def _running(targets: list[Path]) -> bool:
    from rl_training.files.run_directory import is_locked

    return any(is_locked(record.parent) for target in targets for record in target.rglob("run.json"))


def run_watch(args: Args) -> int:
    from rl_training.report.run_data import load_run
    from rl_training.run.progress import Progress

    run_dir = _run_directory(Path(args.target))
    run = load_run(run_dir)
    total = _total(run)
    several = f" x {len(run.seeds)} seeds" if len(run.seeds) > 1 else ""
    label = f"{run.info.get('algo')} {run.info.get('env_id')}{several}"
    shown: set[float] = set()
    with Progress(total, label, int(run.steps or 0), stream=sys.stdout, enabled=not args.json) as progress:
        while True:
            if not args.json:
                for line in _evaluations(run, shown):
                    progress.note(line)
            progress.update(int(run.steps or 0), _latest(run))
            if not run.locked:
                break
            time.sleep(args.every)
            run = load_run(run_dir)
    answer = {"status": run.status, "steps": run.steps, "evaluations": len(run.evaluations)}
    print_answer(args, answer, f"{run.status} at {run.unit.removesuffix('s')} {int(run.steps or 0):,}")
    return 0 if run.status in ("finished", "stopped") else 1


def _total(run: Run) -> int:
    from rl_training.config.yaml_loading import parse_yaml
    from rl_training.report.run_data import as_mapping, as_number, planned_steps

    values = as_mapping(parse_yaml(run.config, "config.yaml").values) if run.config else {}
    return int(as_number(planned_steps(run.info, values)) or 0)


def _evaluations(run: Run, shown: set[float]) -> list[str]:
    """A line for each evaluation that has not been shown."""
    from rl_training.core.statistics import headline, summarize
    from rl_training.report.run_data import episode_returns, mean_of

    by_step: dict[float, list[float]] = {}
    for row in run.evaluations:
        by_step.setdefault(row["step"], []).append(mean_of(episode_returns(row)))
    lines = []
    for step, means in by_step.items():
        if step in shown or (run.locked and len(means) < len(run.seeds) - len(run.failed_seeds)):
            continue
        shown.add(step)
        about = headline(summarize(means)) if len(means) > 1 else f"{means[0]:.1f}"
        lines.append(f"{run.unit.removesuffix('s')} {int(step):,}: evaluation {about}")
    return lines


def _latest(run: Run) -> dict[str, float | None]:
    """The newest training return and loss, averaged over seeds."""
    from rl_training.report.run_data import as_number, mean_of

    values: dict[str, float | None] = {}
    for name in ("rollout/ep_rew_mean", *(name for row in run.metrics[-1:] for name in row if name.endswith("loss"))):
        by_seed = {row["seed"]: value for row in run.metrics if (value := as_number(row.get(name))) is not None}
        if by_seed and math.isfinite(newest := mean_of(list(by_seed.values()))):
            values[name.replace("rollout/ep_rew_mean", "return")] = newest
    return values
