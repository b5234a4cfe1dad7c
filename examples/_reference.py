"""What every reference example does: train from a packaged config, evaluate on fresh episodes, export the agent."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from rl_training.cli import load_config
from rl_training.config.train_config import TrainConfig
from rl_training.run.agent import load_agent
from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.run.workflows import evaluate_checkpoint


def run_reference(config_name: str) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--total-timesteps", type=int)
    parser.add_argument("--eval-episodes", type=int)
    parser.add_argument("--output-dir", type=Path, default=Path("runs"))
    parser.add_argument("--seed", type=int, default=0)
    words = parser.parse_args()
    config = load_config(
        config_name,
        total_timesteps=words.total_timesteps,
        eval_episodes=words.eval_episodes,
        output_dir=str(words.output_dir),
        seed=words.seed,
    )
    config = learn_early_enough(config)
    result = get_algorithm_spec(config.algo).train_fn(config, run_suffix="reference")
    best = result.run_dir / "agents" / f"seed_{config.seed}_best.safetensors"
    agent = best if best.exists() else result.run_dir / "agents" / f"seed_{config.seed}_final.safetensors"
    if config.eval_episodes:
        metrics = evaluate_checkpoint(agent, config.eval_episodes)
        mean, std = metrics["eval_return_mean"], metrics["eval_return_std"]
        print(f"return {mean:.1f} +- {std:.1f} on {metrics['eval_episodes']} fresh episodes")
    exported = load_agent(agent).save(result.run_dir / "agent.safetensors")
    print(f"agent  {exported}\nreport {result.run_dir / 'report.html'}")


def learn_early_enough(config: TrainConfig) -> TrainConfig:
    """A run much shorter than the config was made for still learns: `learning_starts` shrinks with it."""
    settings = dict(config.algo_kwargs)
    fields = {field.name: field for field in dataclasses.fields(get_algorithm_spec(config.algo).learner.settings_type)}
    if "learning_starts" not in fields:  # on-policy: a run shorter than a rollout shortens the rollout
        return config
    starts = int(settings.get("learning_starts", fields["learning_starts"].default))
    settings["learning_starts"] = min(starts, config.total_timesteps // 4)
    return dataclasses.replace(config, algo_kwargs=settings)
