"""`rl-training sweep` and `rl-training tune`: many runs from one file."""

from __future__ import annotations

import json
import sys
from typing import Any

from rl_training.cli.arguments import Args, Parser, add_command, print_answer, whole_number


def add_sweep(subparsers: Any) -> None:
    text = "run algorithms x environments x overrides from one file; the same command continues it"
    sweep = add_command(subparsers, "sweep", run_sweep, text)
    sweep.add_argument("study", metavar="STUDY.yaml", help="algorithms, environments, overrides and seeds")
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
    report = sweep.write_study_report(plan.folder.path)
    if args.json:
        print(json.dumps({**sweep.answer(plan, outcome), "report": report}, default=str))
    else:
        sweep.finish_study(plan.folder.path)
        if report is not None:
            print(f"report {report}")
    for line in sweep.failure_lines(plan, outcome):
        print(f"error: {line}", file=sys.stderr)
    return 1 if outcome.failed else 0


def add_tune(subparsers: Any) -> None:
    text = "search the settings of an algorithm with Optuna; the same command continues it"
    tune = add_command(subparsers, "tune", run_tune, text)
    tune.add_argument("study", metavar="STUDY.yaml", help="an algorithm, an environment and what is searched")
    tune.add_argument("--best", metavar="FILE", help="write the config of the best trial")
    add_launch_options(tune)


def run_tune(args: Args) -> int:
    from rl_training.studies import tune
    from rl_training.studies.choose_launcher import LaunchOptions

    options = LaunchOptions(args.launch, args.jobs, args.address, tuple(args.sbatch))
    tuning = tune.load_tuning(args.study)
    outcome, trials = tune.run_tuning(tuning, options, show_progress=not args.quiet)
    rows, importance = tune.trial_rows(trials), trials.importance()
    answer = {"study": str(tuning.folder.path), "trials": rows, "importance": importance}
    print_answer(args, answer, "\n".join(tune.result_lines(tuning, trials)))
    if args.best is not None:
        number = tune.write_best(tuning, trials, args.best)
        print(f"best  trial {number}, config {args.best}", file=sys.stderr)
    for name, reason in outcome.failed.items():
        print(f"error: {name}: {reason} (log {tuning.folder.log(name)})", file=sys.stderr)
    return 1 if outcome.failed else 0
