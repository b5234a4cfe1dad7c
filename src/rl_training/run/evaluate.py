"""Evaluation: whole episodes, by default with the greedy policy. It has its own streams and cannot change training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import Learner
from rl_training.core.d4rl import normalized_score
from rl_training.core.rng import episode_seed
from rl_training.engine.acting import Act, State
from rl_training.envs.batched import make_batched
from rl_training.envs.episode_metrics import info_means
from rl_training.envs.host.episode_bound import DEFAULT_BOUND, EpisodeBound
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.host.workers import choose_threads
from rl_training.run.plan import cores

Guard = Callable[[SeededEnvs], AbstractContextManager[object]]
MAX_BATCH = 32  # episodes of one seed at the same time
FRESH_EPISODES = 1 << 30  # the first episode of evaluations after training: not used during training


@dataclass(frozen=True)
class Evaluation:
    """Returns, lengths and numbers from the info of one seed's episodes."""

    returns: list[float]
    lengths: list[int]
    cut: int = 0  # episodes that were cut at the bound
    infos: dict[str, list[float]] = field(default_factory=dict)  # by name, of the episodes that have the number

    @property
    def mean(self) -> float:
        return float(np.mean(self.returns))

    def metrics(self) -> dict[str, float]:
        of_infos = info_means(self.infos, "eval/")
        return {"eval/mean_reward": self.mean, "eval/mean_ep_length": float(np.mean(self.lengths)), **of_infos}


@dataclass(frozen=True)
class EvaluationPlan:
    """The environment, number and maximum length of an evaluation's episodes."""

    source: EnvSource
    episodes: int  # per seed
    bound: EpisodeBound = DEFAULT_BOUND
    guard: Guard = nullcontext
    deterministic: bool = True  # false: the policy explores as at the end of training


def evaluate(learner: Learner, plan: EvaluationPlan, first_episode: int) -> list[Evaluation]:
    """Run episodes with every seed's policy; the same seeds and `first_episode` give the same episodes."""
    parts: list[list[Evaluation]] = []
    for start in range(0, plan.episodes, MAX_BATCH):
        count = min(MAX_BATCH, plan.episodes - start)
        parts.append(_run_batch(learner, plan, count, first_episode + start))
    return [
        Evaluation(
            [value for one in of_seed for value in one.returns],
            [length for one in of_seed for length in one.lengths],
            sum(one.cut for one in of_seed),
            joined_infos(of_seed),
        )
        for of_seed in zip(*parts, strict=True)
    ]


def _run_batch(learner: Learner, plan: EvaluationPlan, episodes: int, first_episode: int) -> list[Evaluation]:
    """Run one episode in each of `episodes` environments per seed; finished rows are masked."""
    source, seeds = plan.source.for_evaluation(), learner.seeds
    rows = (_VectorRows if source.batched else _HostRows)(source, learner, episodes, first_episode)
    with closing(rows.envs), rows.guarded(plan.guard):
        rows.envs.reset_all()
        size = rows.envs.size
        returns, lengths, active = np.zeros(size), np.zeros(size, np.int64), np.ones(size, np.bool_)
        last = plan.bound.steps(rows.envs.spec.episode_limit)
        state: State = learner.initial_states(episodes)
        while active.any() and (last is None or lengths.max() < last):
            act = _act(learner, plan, rows.obs(), state, first_episode, int(lengths.max()))
            rewards, ended = rows.step(act.action, active)
            state = act.state
            returns[active] += rewards[active]
            lengths[active] += 1
            active &= ~ended
            rows.advance()
        arrays = (returns, lengths, active, rows.infos())
        by_seed = (array.reshape(len(seeds), episodes, *array.shape[1:]) for array in arrays)
        return [
            Evaluation(r.tolist(), n.tolist(), int(cut.sum()), _finite_columns(rows.info_names, numbers))
            for r, n, cut, numbers in zip(*by_seed, strict=True)
        ]


class _HostRows:
    """The rows of an evaluation in Gymnasium environments."""

    def __init__(self, source: EnvSource, learner: Learner, episodes: int, first_episode: int) -> None:
        self.shape, self.info_names = (len(learner.seeds), episodes), source.info_metrics
        # Starting processes takes a second, which only pays with many environments on many cores.
        many = len(learner.seeds) * episodes >= 64 and cores() >= 4 and source.factory is None
        workers = cores() if many else 0
        threads = choose_threads(len(learner.seeds) * episodes, cores())
        self.envs = SeededEnvs(
            source, learner.seeds, episodes, "eval_episode", first_episode, workers=workers, threads=threads
        )

    def guarded(self, guard: Guard) -> AbstractContextManager[object]:
        return guard(self.envs)

    def obs(self) -> Tensor:
        return torch.from_numpy(self.envs.obs.reshape(*self.shape, *self.envs.obs.shape[1:]))

    def step(self, actions: Tensor, active: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Step the active rows: their rewards, and whether they ended."""
        envs = self.envs
        envs.step(actions.flatten(0, 1).cpu().numpy(), active)
        return envs.rewards, envs.terminated | envs.truncated

    def advance(self) -> None:
        self.envs.obs, self.envs.next_obs = self.envs.next_obs, self.envs.obs

    def infos(self) -> NDArray[Any]:
        return self.envs.infos  # of each row's one episode: finished rows are not stepped


class _VectorRows:
    """The rows of an evaluation in a `VectorEnv` of its own, made with other seeds than those of training."""

    info_names = ()

    def __init__(self, source: EnvSource, learner: Learner, episodes: int, first_episode: int) -> None:
        seeds = [episode_seed(seed, "eval_episode", 0, first_episode) for seed in learner.seeds]
        self.envs = make_batched(source, seeds, episodes, learner.device)

    def guarded(self, guard: Guard) -> AbstractContextManager[object]:
        return nullcontext()

    def obs(self) -> Tensor:
        return self.envs.by_seed(self.envs.obs)

    def step(self, actions: Tensor, active: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Step all rows: their rewards, and whether they ended."""
        step = self.envs.step(actions.flatten(0, 1))
        return step.rewards.cpu().numpy(), (step.terminated | step.truncated).cpu().numpy()

    def advance(self) -> None:
        self.envs.advance()

    def infos(self) -> NDArray[Any]:
        return np.zeros((self.envs.size, 0))


def _act(learner: Learner, plan: EvaluationPlan, obs: Tensor, state: State, first_episode: int, step: int) -> Act:
    if plan.deterministic:
        return learner.act_greedy(obs, state)
    counter = first_episode << 32  # of random numbers: episodes have fewer steps than that
    return learner.act_explore(obs, counter + step, 1.0, state, stream="eval_explore")


def _finite_columns(names: Sequence[str], numbers: NDArray[Any]) -> dict[str, list[float]]:
    """By name, the numbers of the episodes that have one; names without any are left out."""
    columns = {name: column[np.isfinite(column)].tolist() for name, column in zip(names, numbers.T, strict=True)}
    return {name: column for name, column in columns.items() if column}


def joined_infos(evaluations: Sequence[Evaluation]) -> dict[str, list[float]]:
    """The numbers from the infos of several evaluations, by name."""
    names = {name: None for one in evaluations for name in one.infos}  # in order
    return {name: [value for one in evaluations for value in one.infos.get(name, ())] for name in names}


def evaluation_summary(env_id: str, evaluations: Sequence[Evaluation], best: Sequence[float]) -> dict[str, Any]:
    """The metrics of a run's last evaluations, one per seed, and of its best ones."""
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
        **info_means(joined_infos(evaluations), "eval_"),
    }
