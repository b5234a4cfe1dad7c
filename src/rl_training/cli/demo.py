"""`rl-training demo`: train an agent that solves CartPole, with a video and a report to look at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rl_training.cli.arguments import Args, add_command, print_answer
from rl_training.core.assets import ASSETS
from rl_training.run.loading import load_config

SOLVED, EPISODES = 475.0, 100  # Gymnasium's reward threshold for CartPole-v1


def add_demo(subparsers: Any) -> None:
    demo = add_command(subparsers, "demo", run_demo, "train DQN on CartPole, evaluate it, record a video and a report")
    demo.add_argument("--output-dir", default="runs", metavar="DIR", help="where the run is made (default: runs)")


def run_demo(args: Args) -> int:
    answer = _train_and_evaluate(Path(args.output_dir))
    print_answer(args, answer, answer["text"])
    return 0 if answer["solved"] else 1


def _train_and_evaluate(output_dir: Path) -> dict[str, Any]:
    from rl_training.run.run import train
    from rl_training.run.workflows import evaluate_checkpoint

    started = time.monotonic()
    config = load_config(ASSETS / "configs/dqn/cartpole.yaml", output_dir=str(output_dir))
    result = train(config, run_suffix="demo")
    agent = result.run_dir / "agents" / f"seed_{config.seed}_best.safetensors"
    evaluation = evaluate_checkpoint(agent, EPISODES)
    solved = evaluation["eval_return_mean"] >= SOLVED
    text = (
        f"{'solved' if solved else 'NOT solved'}: mean return {evaluation['eval_return_mean']:.1f} over "
        f"{EPISODES} fresh episodes (the task counts as solved from {SOLVED:.0f}; 500 is the maximum)\n"
        f"agent   {agent}\nvideo   {result.run_dir / 'video.webm'}\nreport  {result.run_dir / 'report.html'}\n"
        f"took    {time.monotonic() - started:.0f} s"
    )
    return {"solved": solved, "text": text, "run_dir": str(result.run_dir), **evaluation}
