"""`rl-training export` and `verify`: policies as files that run without this library."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rl_training.cli.arguments import (
    Args,
    Parser,
    add_agent,
    add_command,
    add_objects,
    agent_path,
    print_answer,
    whole_number,
)
from rl_training.config.objects import named_objects


def add_export(subparsers: Any) -> None:
    text = "an agent's policy as a file that runs without this library, checked against the agent"
    export = add_command(subparsers, "export", run_export, text)
    add_agent(export)
    text = "onnx (.onnx), torch (.pt2) or numpy (.npz, dense networks); default: by the suffix of the output"
    export.add_argument("--to", metavar="FORMAT", help=text)
    export.add_argument("-o", "--output", required=True, metavar="FILE", help="the file to write")
    add_seed_index(export)


def add_seed_index(parser: Parser) -> None:
    """Add `--seed-index`, which chooses among the seeds of a run."""
    parser.add_argument("--seed-index", type=whole_number, default=0, metavar="N", help="among a run's seeds, from 0")


def run_export(args: Args) -> int:
    from rl_training.deploy.export.exporting import export_agent
    from rl_training.run.agent import load_agent

    agent = load_agent(agent_path(args), args.device, named_objects(args.objects))
    done = export_agent(agent, args.output, args.to, args.seed_index)
    check, times = done.check, done.latency_us
    ties = f", {check.ties} ties" if check.ties else ""
    lines = [
        f"export   {done.path}",
        f"contract {done.contract_path}",
        *([f"runner   {done.runner_path}"] if done.runner_path is not None else []),
        f"checked  {check.observations} observations, largest difference {check.max_difference:.2g}{ties}",
        f"latency  {times['exported']:g} us for one observation, predict {times['predict']:g} us",
    ]
    print_answer(args, asdict(done), "\n".join(lines))
    return 0


def add_verify(subparsers: Any) -> None:
    text = "compare an exported file with an agent again, which may have changed since"
    verify = add_command(subparsers, "verify", run_verify, text)
    verify.add_argument("file", metavar="FILE", help="an exported .onnx, .npz or .pt2 file, its contract beside it")
    verify.add_argument("target", metavar="PATH", help="an agent file, a checkpoint or a run directory")
    verify.add_argument("--device", default="auto", metavar="D", help="auto, cpu, cuda or cuda:1 (default %(default)s)")
    add_seed_index(verify)
    add_objects(verify)


def run_verify(args: Args) -> int:
    from rl_training.deploy.export.exporting import verify_export
    from rl_training.run.agent import load_agent

    agent = load_agent(args.target, args.device, named_objects(args.objects))
    found = verify_export(args.file, agent, args.seed_index)
    print_answer(args, {**asdict(found), "equal": found.problem is None}, str(found))
    return 0 if found.problem is None else 1
