"""`rl-training compare`: tables, figures and curves of several runs."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.cli.arguments import Args, add_command, whole_number
from rl_training.cli.errors import in_flags
from rl_training.core.checks import UserError

if TYPE_CHECKING:
    from rl_training.studies.compare import Comparison


FLAGS = {"across": "--across", "up_to": "--up-to", "env": "--env"}  # of the parameters that notes name


def add_compare(subparsers: Any) -> None:
    text = "compare runs of several algorithms and seeds: tables with intervals, curves, figures"
    compare = add_command(subparsers, "compare", run_compare, text)
    text = (
        "run directories, folders of them, CSV files of curves, Stable-Baselines3's monitor.csv and evaluations.npz, "
        "TensorBoard's event files; NAME=RUN names one"
    )
    compare.add_argument("targets", nargs="+", metavar="RUN", help=text)
    text = "what is ranked: each seed's final evaluation (default), its best one, or the area under its curve"
    compare.add_argument("--score", choices=("final", "best", "area"), default="final", help=text)
    compare.add_argument("--metric", metavar="NAME", help="a metric of metrics.jsonl or of the files (default: return)")
    compare.add_argument("--up-to", type=whole_number, metavar="STEP", help="ignore later steps")
    compare.add_argument("--across", action="store_true", help="also compare over all tasks, on normalised scores")
    text = "the returns that become 0 and 1, e.g. CartPole-v1=0:500 (known: D4RL, DeepMind Control, Atari)"
    compare.add_argument("--bounds", action="append", default=[], type=_bounds, metavar="ENV=LOW:HIGH", help=text)
    compare.add_argument("--env", metavar="ENV", help="the environment of files that do not name theirs")
    compare.add_argument("--csv", metavar="FILE", help="write the curves, one line per seed and step")
    compare.add_argument("--figures", metavar="DIR", help="write figures as SVG and PDF (needs matplotlib)")
    compare.add_argument("--page", metavar="FILE", help="write an HTML page")


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    env, _, values = text.rpartition("=")
    try:
        low, high = (float(value) for value in values.split(":"))
        if not env or not math.isfinite(high - low):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not ENV=LOW:HIGH, e.g. CartPole-v1=0:500") from None
    if not low < high:
        raise argparse.ArgumentTypeError(f"{text!r} must have LOW < HIGH")
    return env, (low, high)


def run_compare(args: Args) -> int:
    from rl_training.studies.compare import collect, compare

    collection = collect(args.targets, metric=args.metric, env=args.env)
    found = compare(collection, score=args.score, bounds=dict(args.bounds), across=args.across, up_to=args.up_to)
    _print(args, found)
    for line in _written(args, found):
        print(line, file=sys.stderr)
    for note in found.notes:
        print(f"note: {in_flags(note, FLAGS)}", file=sys.stderr)
    for problem in found.problems:
        print(f"left out: {in_flags(problem, FLAGS)}", file=sys.stderr)
    return 1 if found.problems else 0


def _print(args: Args, found: Comparison) -> None:
    from rl_training.run.progress import is_terminal
    from rl_training.studies.text import plain_text, print_rich

    if args.json:
        print(json.dumps(found.to_dict()))
    elif is_terminal(sys.stdout):
        print_rich(found)
    else:
        print(plain_text(found))


def _written(args: Args, found: Comparison) -> list[str]:
    """Write what the options name; returns a line for each."""
    lines = []
    if args.csv is not None:
        from rl_training.studies.curves import to_csv

        _write(Path(args.csv), to_csv(found.curves))
        lines.append(f"curves {args.csv}")
    if args.figures is not None:
        from rl_training.studies.figures import write_figures

        files = write_figures(found, Path(args.figures))
        lines.append(f"figures {args.figures} ({len(files)} files)")
    if args.page is not None:
        from rl_training.studies.page import comparison_page

        _write(Path(args.page), comparison_page(found))
        lines.append(f"page {args.page}")
    return lines


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
