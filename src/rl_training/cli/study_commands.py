"""`rl-training sweep`: many runs from one file."""

from __future__ import annotations

import json
import sys
from typing import Any

from rl_training.cli.arguments import Args, Parser, add_command, whole_number


def add_sweep(subparsers: Any) -> None:
    text = "run algorithms x environments x overrides from one file; the same command continues it"
    sweep = add_command(subparsers, "sweep", run_sweep, text)
    sweep.add_argument("study", metavar="STUDY.yaml")
    sweep.add_argument("--dry-run", action="store_true", help="show the plan with estimates of time and disk")
    add_launch_options(sweep)


def add_launch_options(parser: Parser) -> None:
    """Add the options that say where and how many runs are started."""
    names = ("local", "ray", "slurm")
    parser.add_argument("--launch", choices=names, default="local", help="where the runs are started")
    text = "runs at a time (default: as many as the cores, memory and GPUs allow)"
    parser.add_argument("--jobs", type=whole_number, metavar="N", help=text)
    parser.add_argument("--address", metavar="A", help="of a Ray cluster (default: RAY_ADDRESS, else this machine)")
    text = "an option of sbatch, e.g. --sbatch=--partition=gpu"
    parser.add_argument("--sbatch", action="append", default=[], metavar="OPTION", help=text)
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def run_sweep(args: Args) -> int:
    from rl_training.studies import sweep
    from rl_training.studies.choose_launcher import LaunchOptions

    options = LaunchOptions(args.launch, args.jobs, args.address, tuple(args.sbatch))
    plan = sweep.plan_sweep(args.study)
    if args.dry_run:
        from rl_training.studies.estimate import dry_run

        print(json.dumps(dry_run(plan, options)) if args.json else "\n".join(dry_run(plan, options)["lines"]))
        return 0
    outcome = sweep.run_sweep(plan, options, show_progress=not args.quiet)
    if args.json:
        print(json.dumps(sweep.answer(plan, outcome), default=str))
    else:
        sweep.finish_study(plan.folder.path)
    for line in sweep.failure_lines(plan, outcome):
        print(f"error: {line}", file=sys.stderr)
    return 1 if outcome.failed else 0
