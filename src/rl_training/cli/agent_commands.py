"""`rl-training evaluate`, `predict` and `record`: commands for trained agents."""

from __future__ import annotations

import json
import sys
from typing import Any

from rl_training.cli.arguments import (
    Args,
    add_agent,
    add_command,
    add_episode_limit,
    agent_path,
    print_answer,
    whole_number,
)
from rl_training.cli.export_commands import add_seed_index
from rl_training.config.objects import named_objects
from rl_training.core.checks import UserError


def add_evaluate(subparsers: Any) -> None:
    for name, text in (("evaluate", "run fresh episodes with a trained agent"), ("eval", "short for evaluate")):
        evaluate = add_command(subparsers, name, run_evaluate, text)
        add_agent(evaluate)
        evaluate.add_argument("--num-episodes", type=whole_number, metavar="N", help="default: those of the config")
        evaluate.add_argument("--env", metavar="ENV", help="another environment, or module:Id")
        evaluate.add_argument("--stochastic", action="store_true", help="explore instead of the best action")
        evaluate.add_argument("--return-episodes", action="store_true", help="with --json: every return and length")
        add_episode_limit(evaluate)


def run_evaluate(args: Args) -> int:
    from rl_training.core.statistics import headline
    from rl_training.run.workflows import evaluate_checkpoint

    options: dict[str, Any] = {
        "env_id": args.env,
        "episode_limit": args.episode_limit,
        "objects": named_objects(args.objects),
        "deterministic": not args.stochastic,
        "return_episodes": args.return_episodes,
    }
    metrics = evaluate_checkpoint(agent_path(args), args.num_episodes, args.device, **options)
    mean, std = metrics["eval_return_mean"], metrics["eval_return_std"]
    text = f"return {mean:.2f} +- {std:.2f} ({metrics['eval_episodes']} episodes)"
    if "eval_d4rl_score" in metrics:
        text += f"\nD4RL score {metrics['eval_d4rl_score']:.1f}"
    if "summary" in metrics:
        text += f"\nover seeds {headline(metrics['summary'])}"
        text += "".join(f"\n  seed {seed}: {mean:.2f}" for seed, mean in metrics["seeds"].items())
    print_answer(args, metrics, text)
    return 0


def add_predict(subparsers: Any) -> None:
    predict = add_command(subparsers, "predict", run_predict, "the action for an observation")
    add_agent(predict)
    predict.add_argument("--obs", required=True, metavar="JSON", help="one observation or a batch; - reads stdin")
    predict.add_argument("--action-mask", metavar="JSON", help="1 where a choice is allowed; of a batch, one for each")
    predict.add_argument("--stochastic", action="store_true", help="explore instead of the best action")
    add_seed_index(predict)


def run_predict(args: Args) -> int:
    from rl_training.run.workflows import predict_checkpoint

    obs = _parsed("--obs", sys.stdin.read() if args.obs == "-" else args.obs, "[0.1, 0, 0, 0]")
    mask = None if args.action_mask is None else _parsed("--action-mask", args.action_mask, "[1, 0, 1]")
    options = {"action_mask": mask, "objects": named_objects(args.objects), "seed_index": args.seed_index}
    action = predict_checkpoint(agent_path(args), obs, not args.stochastic, args.device, **options)
    print(json.dumps(action.tolist() if hasattr(action, "tolist") else action))
    return 0


def _parsed(option: str, text: str, example: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{option} must be JSON, e.g. {example}, got {text[:60]!r}") from error


def add_record(subparsers: Any) -> None:
    record = add_command(subparsers, "record", run_record, "a video of a trained agent, without a display")
    add_agent(record)
    record.add_argument("--output", default="video.webm", metavar="FILE", help=".webm (default), .mp4 or .gif")
    record.add_argument("--episodes", type=whole_number, default=1, metavar="N", help="in one video (default 1)")
    record.add_argument("--env", metavar="ENV", help="another environment, or module:Id")
    add_episode_limit(record)


def run_record(args: Args) -> int:
    from rl_training.run.workflows import record_checkpoint

    options = {"env_id": args.env, "episode_limit": args.episode_limit, "objects": named_objects(args.objects)}
    path, returns = record_checkpoint(agent_path(args), args.output, args.episodes, args.device, **options)
    shown = ", ".join(f"{value:.1f}" for value in returns)
    print_answer(args, {"video": str(path), "returns": returns}, f"video {path} (return {shown})")
    return 0
