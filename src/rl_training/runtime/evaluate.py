"""Whole episodes with the greedy policy. Draws from its own streams: it cannot change training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.algorithms.base import Learner
from rl_training.core.d4rl import normalized_score
from rl_training.envs.factory import EnvSource
from rl_training.envs.vector import SeededEnvs
from rl_training.runtime.choices import cores

Guard = Callable[[SeededEnvs], AbstractContextManager[object]]
LARGEST_BATCH = 32  # episodes of one seed played at the same time
FRESH_EPISODES = 1 << 30  # evaluations after training start here: episodes that no evaluation during training used


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of one seed's episodes."""

    returns: list[float]
    lengths: list[int]

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))


def evaluate(
    learner: Learner,
    source: EnvSource,
    seeds: Sequence[int],
    episodes: int,
    first_episode: int,
    guard: Guard = nullcontext,
) -> list[Evaluation]:
    """`episodes` episodes for each seed; the same seeds and `first_episode` give the same episodes."""
    parts: list[list[Evaluation]] = []
    for start in range(0, episodes, LARGEST_BATCH):
        count = min(LARGEST_BATCH, episodes - start)
        parts.append(_play(learner, source, seeds, count, first_episode + start, guard))
    return [
        Evaluation([r for part in parts for r in part[k].returns], [n for part in parts for n in part[k].lengths])
        for k in range(len(seeds))
    ]


def _play(
    learner: Learner, source: EnvSource, seeds: Sequence[int], episodes: int, first_episode: int, guard: Guard
) -> list[Evaluation]:
    """One episode in each of `episodes` environments per seed; finished rows are masked."""
    rows = len(seeds) * episodes
    # Starting processes takes a second: only many environments on many cores win it back.
    workers = cores() if rows >= 64 and cores() >= 4 else 0
    envs = SeededEnvs(source.for_evaluation(), seeds, episodes, "eval_episode", first_episode, workers=workers)
    with closing(envs), guard(envs):
        envs.reset_all()
        returns, lengths = np.zeros(envs.size), np.zeros(envs.size, np.int64)
        active = np.ones(envs.size, np.bool_)
        while active.any():
            actions = learner.act_greedy(envs.obs.reshape(len(seeds), episodes, *envs.obs.shape[1:]))
            envs.step(actions.reshape(envs.size, *actions.shape[2:]), active)
            returns[active] += envs.rewards[active]
            lengths[active] += 1
            active &= ~(envs.terminated | envs.truncated)
            envs.obs, envs.next_obs = envs.next_obs, envs.obs
        by_seed = zip(returns.reshape(len(seeds), -1), lengths.reshape(len(seeds), -1), strict=True)
        return [Evaluation(r.tolist(), n.tolist()) for r, n in by_seed]


def evaluation_summary(env_id: str, evaluations: Sequence[Evaluation], best: Sequence[float]) -> dict[str, Any]:
    """What a run reports of its last evaluations, one for each seed, and of its best ones."""
    means = [one.mean for one in evaluations]
    returns = [value for one in evaluations for value in one.returns]
    score = normalized_score(env_id, float(np.mean(means)))
    return {
        **({} if score is None else {"eval_d4rl_score": score}),
        "eval_return_mean": float(np.mean(means)),
        "eval_return_std": float(np.std(returns)),
        "eval_episodes": len(returns),
        "eval_return_means": means,
        "best_eval_return_mean": float(np.mean(best)) if best else None,
    }
