"""Evaluates, predicts with and records videos of checkpoints and agent files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config.objects import Objects
from rl_training.core.checks import Note, require
from rl_training.core.d4rl import normalized_score
from rl_training.core.statistics import summarize
from rl_training.envs.episode_metrics import info_means
from rl_training.envs.host.episode_bound import EpisodeBound
from rl_training.envs.host.factory import EnvFactory, EnvSource, env_source
from rl_training.envs.make import check_for_agent
from rl_training.report.video import check_video_path
from rl_training.run.agent import Agent, load_agent
from rl_training.run.artifacts import record_video
from rl_training.run.evaluate import FRESH_EPISODES, EvaluationPlan, evaluate, joined_infos


def evaluate_agent(
    agent: Agent,
    source: EnvSource,
    num_episodes: int | None,
    first_episode: int = FRESH_EPISODES,
    episode_limit: int | None = None,
    deterministic: bool = True,
    return_episodes: bool = False,
) -> dict[str, Any]:
    """Evaluate an agent on `num_episodes` (default: its config's), each cut at `episode_limit` steps.

    The default limit is the config's `eval_episode_limit`, for environments without a time limit. `return_episodes`
    adds the return and length of every episode, one seed's after the other's.
    """
    bound = EpisodeBound.of(agent.config, episode_limit)
    if num_episodes is None:
        num_episodes = agent.config.eval_episodes or 5
    require(num_episodes >= 1, "num_episodes", f">= 1, got {num_episodes}")
    source = check_for_agent(agent.spec, source, agent.learner.device)
    seeds = agent.learner.seeds
    plan = EvaluationPlan(source, num_episodes, bound, deterministic=deterministic)
    results = evaluate(agent.learner, plan, first_episode)
    returns = [value for one in results for value in one.returns]
    metrics: dict[str, Any] = {
        "eval_return_mean": float(np.mean(returns)),
        "eval_return_std": float(np.std(returns)),
        "eval_episodes": len(returns),
        **info_means(joined_infos(results), "eval_"),
    }
    if return_episodes:
        metrics["eval_returns"] = returns
        metrics["eval_lengths"] = [length for one in results for length in one.lengths]
    cut = sum(one.cut for one in results)
    if cut:
        metrics["eval_episodes_cut"] = cut
        warnings.warn(f"evaluation: {bound.report(cut, len(returns))}", Note, stacklevel=2)
    score = normalized_score(source.env_id, metrics["eval_return_mean"])
    if score is not None:
        metrics["eval_d4rl_score"] = score
    if len(seeds) > 1:
        metrics["seeds"] = {str(seed): one.mean for seed, one in zip(seeds, results, strict=True)}
        metrics["summary"] = dict(summarize([one.mean for one in results]))
    return metrics


def evaluate_checkpoint(
    path: str | Path,
    num_episodes: int | None = None,
    device: str = "auto",
    *,
    env_id: str | None = None,
    env_factory: EnvFactory | None = None,
    episode_limit: int | None = None,
    objects: Objects | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate an agent file, a checkpoint or a run on fresh episodes, as `evaluate_agent` does with these options."""
    agent = load_agent(path, device, objects)
    source = env_source(agent.config, env_id, env_factory)
    return evaluate_agent(agent, source, num_episodes, episode_limit=episode_limit, **options)


def predict_checkpoint(
    path: str | Path,
    obs: Any,
    deterministic: bool = True,
    device: str = "auto",
    *,
    action_mask: Any = None,
    objects: Objects | None = None,
    seed_index: int = 0,
) -> Any:
    """The action of an agent file, a checkpoint or a run for an observation or a batch."""
    options = {"action_mask": action_mask, "seed_index": seed_index}
    return load_agent(path, device, objects).predict(obs, deterministic, **options)


def record_checkpoint(
    path: str | Path,
    video: str | Path,
    episodes: int = 1,
    device: str = "auto",
    *,
    env_id: str | None = None,
    env_factory: EnvFactory | None = None,
    episode_limit: int | None = None,
    objects: Objects | None = None,
) -> tuple[Path, list[float]]:
    """Record a video of an agent file, a checkpoint or a run, as .webm, .mp4 or .gif."""
    check_video_path(Path(video))
    require(episodes >= 1, "episodes", f">= 1, got {episodes}")
    agent = load_agent(path, device, objects)
    bound = EpisodeBound.of(agent.config, episode_limit)
    return record_video(agent, env_source(agent.config, env_id, env_factory), Path(video), episodes, bound)
