"""`rl-training import`: agents of other libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rl_training.cli.arguments import Args, Parser, add_command, print_answer
from rl_training.core.checks import UserError


def add_import(subparsers: Any) -> None:
    text = "an agent file from a model of another library"
    parent: Parser = subparsers.add_parser("import", help=text, description=text)
    parent.print_help_by_default()
    sources = parent.add_subparsers(dest="source", metavar="SOURCE", parser_class=Parser)
    text = "a model.zip of Stable-Baselines3 (SAC, TD3, DQN, PPO, A2C) or sb3-contrib (TQC, QR-DQN)"
    sb3 = add_command(sources, "sb3", run_import, text)
    sb3.add_argument("model", metavar="MODEL", help="the file that model.save() wrote; nothing in it is executed")
    sb3.add_argument("--env", required=True, metavar="ENV", help="its environment, for the spaces: an id, or module:Id")
    text = "statistics of VecNormalize: mean, var, count, epsilon and clip_obs"
    sb3.add_argument("--normalization", metavar="NPZ", help=text)
    sb3.add_argument("-o", "--output", required=True, metavar="FILE", help="the agent file to write")


def run_import(args: Args) -> int:
    from rl_training.deploy.sb3 import import_sb3

    output = Path(args.output)
    for given in filter(None, (args.model, args.normalization)):
        if os.path.realpath(output) == os.path.realpath(given):
            raise UserError(f"{output}: is imported and would be overwritten; choose another output")
    agent = import_sb3(args.model, args.env, args.normalization)
    path = agent.save(output)
    answer = {"agent": str(path), "algorithm": agent.config.algo, "step": agent.step, "sha256": agent.digest()}
    print_answer(args, answer, f"agent  {path} ({agent.config.algo}, {agent.step} steps)")
    return 0
