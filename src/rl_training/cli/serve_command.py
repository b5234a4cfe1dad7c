"""`rl-training serve`: predictions over HTTP."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from rl_training.cli.arguments import Args, add_agent, add_command, agent_path, whole_number
from rl_training.cli.export_commands import add_seed_index
from rl_training.config.objects import named_objects


def add_serve(subparsers: Any) -> None:
    serve = add_command(subparsers, "serve", run_serve, "predictions of a trained agent over HTTP, until Ctrl-C")
    add_agent(serve)
    serve.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="default: this machine alone")
    serve.add_argument("--port", type=whole_number, default=8000, metavar="N", help="0: any free one")
    serve.add_argument("--max-bytes", type=whole_number, metavar="N", help="of a request (default: 8 MiB)")
    serve.add_argument("--max-batch", type=whole_number, metavar="N", help="observations in a request (default: 4096)")
    add_seed_index(serve)


def run_serve(args: Args) -> int:
    from rl_training.core.checks import require
    from rl_training.deploy.server.predictions import Limits, Predictions
    from rl_training.deploy.server.server import PredictionServer, serve_until_stopped
    from rl_training.run.agent import load_agent

    defaults = Limits()
    limits = Limits(args.max_bytes or defaults.body_bytes, args.max_batch or defaults.rows)
    for name in ("max_bytes", "max_batch"):
        given = getattr(args, name)
        require(given is None or given >= 1, name, f">= 1, got {given}")
    path = agent_path(args)
    agent = load_agent(path, args.device, named_objects(args.objects))
    server = PredictionServer(Predictions(agent, args.seed_index, limits), args.host, args.port)
    about = {"url": server.url, "agent": str(path), "algorithm": agent.config.algo}
    line = f"serving {path} ({agent.config.algo}) at {server.url}; Ctrl-C stops"
    print(json.dumps(about) if args.json else line, flush=True)
    number = serve_until_stopped(server)
    name = signal.Signals(number).name if number else "the server"
    print(f"stopped by {name} after {server.predictions.answered} predictions", file=sys.stderr)
    return 0
