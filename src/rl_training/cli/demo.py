"""The first thing a stranger runs: an agent that solves CartPole, with a video and a report to look at."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rl_training.config.train_config import config_from_dict
from rl_training.config.yaml_loading import load_yaml
from rl_training.core.assets import find_packaged_asset
from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.run.workflows import evaluate_checkpoint

SOLVED, EPISODES = 475.0, 100  # Gymnasium's reward threshold for CartPole-v1


def run_demo(output_dir: Path) -> dict[str, Any]:
    started = time.monotonic()
    path = find_packaged_asset("configs/dqn/cartpole.yaml")
    assert path is not None
    config = config_from_dict({**load_yaml(path).values, "output_dir": str(output_dir)})
    result = get_algorithm_spec(config.algo).train_fn(config, run_suffix="demo")
    agent = result.run_dir / "agents" / f"seed_{config.seed}_best.safetensors"
    evaluation = evaluate_checkpoint(agent, EPISODES)
    solved = evaluation["eval_return_mean"] >= SOLVED
    text = (
        f"{'solved' if solved else 'NOT solved'}: mean return {evaluation['eval_return_mean']:.1f} over "
        f"{EPISODES} fresh episodes (the task counts as solved from {SOLVED:.0f}; 500 is the most)\n"
        f"agent   {agent}\nvideo   {result.run_dir / 'video.webm'}\nreport  {result.run_dir / 'report.html'}\n"
        f"took    {time.monotonic() - started:.0f} s"
    )
    return {"solved": solved, "text": text, "run_dir": str(result.run_dir), **evaluation}
