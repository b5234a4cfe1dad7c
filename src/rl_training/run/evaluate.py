"""Evaluation: whole episodes, by default with the greedy policy. It has its own streams and cannot change training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.base import Learner
from rl_training.config.train_config import TrainConfig
from rl_training.core.d4rl import normalized_score
from rl_training.core.rng import episode_seed
from rl_training.engine.acting import Act, State
from rl_training.envs.base import VectorEnv
from rl_training.envs.batched import make_batched
from rl_training.envs.episode_metrics import info_means
from rl_training.envs.host.classification import reset_is_enough
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
    workers: int | None = None  # environment processes of a large evaluation; None: one per core
    timeout: float = 300.0  # seconds a step may take

    @classmethod
    def of(cls, config: TrainConfig, source: EnvSource, guard: Guard) -> EvaluationPlan:
        """The plan of a run's evaluations."""
        stepping: dict[str, Any] = {"workers": config.workers, "timeout": config.env_timeout}
        return cls(source, config.eval_episodes, EpisodeBound.of(config), guard, **stepping)


class Evaluator:
    """Evaluates a learner any number of times; its environments, threads and worker processes are started once."""

    def __init__(self, learner: Learner, plan: EvaluationPlan) -> None:
        self.learner, self.plan = learner, plan
        self._rows: _HostRows | _VectorRows | None = None

    def run(self, first_episode: int) -> list[Evaluation]:
        """Run episodes with every seed's policy; the same seeds and `first_episode` give the same episodes."""
        plan, parts = self.plan, []
        try:
            if self._rows is None:
                source = _evaluation_source(plan.source)
                self._rows = (_VectorRows if source.batched else _HostRows)(source, self.learner, plan)
            for start in range(0, plan.episodes, MAX_BATCH):
                count = min(MAX_BATCH, plan.episodes - start)
                parts.append(_run_batch(self.learner, plan, self._rows, count, first_episode + start))
        except BaseException:
            self.close()  # it may have cut a step short
            raise
        return [
            Evaluation(
                [value for one in of_seed for value in one.returns],
                [length for one in of_seed for length in one.lengths],
                sum(one.cut for one in of_seed),
                joined_infos(of_seed),
            )
            for of_seed in zip(*parts, strict=True)
        ]

    def close(self) -> None:
        """Close the environments; a later `run` would make new ones."""
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.close()


def evaluate(learner: Learner, plan: EvaluationPlan, first_episode: int) -> list[Evaluation]:
    """Evaluate once, as `Evaluator.run` does."""
    with closing(Evaluator(learner, plan)) as evaluator:
        return evaluator.run(first_episode)


def _evaluation_source(source: EnvSource) -> EnvSource:
    """The source whose environments start every episode like new ones, whatever they played before.

    They are made anew for every episode unless a check showed that a reset is enough. The check before training showed
    it where episodes are replayed; that of a native state, or with the wrappers of training, did not.
    """
    own = source.for_evaluation()
    shown = own.restore == "replay" and own.kwargs.get("wrappers") is source.kwargs.get("wrappers")
    if shown or (own.restore in ("native", "replay") and not own.batched and reset_is_enough(own)):
        return own
    return replace(own, restore="rebuilt")


def _run_batch(
    learner: Learner, plan: EvaluationPlan, rows: _HostRows | _VectorRows, episodes: int, first_episode: int
) -> list[Evaluation]:
    """Run one episode in each of `episodes` environments per seed; finished rows are masked."""
    shape = len(learner.seeds), episodes
    returns, lengths, active = np.zeros(shape), np.zeros(shape, np.int64), np.ones(shape, np.bool_)
    with rows.guarded(plan.guard):
        rows.start(episodes, first_episode)
        last = plan.bound.steps(rows.episode_limit)
        state: State = learner.initial_states(episodes)
        while active.any() and (last is None or lengths.max() < last):
            act = _act(learner, plan, rows.obs(), state, first_episode, int(lengths.max()))
            rewards, ended = rows.step(act.action, active)
            state = act.state
            returns[active] += rewards[active]
            lengths[active] += 1
            active &= ~ended
            rows.advance()
        infos = rows.infos()
        rows.end()
    return [
        Evaluation(r.tolist(), n.tolist(), int(cut.sum()), _finite_columns(rows.info_names, numbers))
        for r, n, cut, numbers in zip(returns, lengths, active, infos, strict=True)
    ]


class _HostRows:
    """The rows of an evaluation in Gymnasium environments, which are kept for the next one."""

    def __init__(self, source: EnvSource, learner: Learner, plan: EvaluationPlan) -> None:
        seeds, num_envs, self.info_names = learner.seeds, min(plan.episodes, MAX_BATCH), source.info_metrics
        size = len(seeds) * num_envs
        # Starting processes takes a second, which only pays with many environments on many cores.
        many = size >= 64 and cores() >= 4 and source.factory is None
        workers = (cores() if plan.workers is None else plan.workers) if many else 0
        threads = choose_threads(size, cores()) if plan.workers is None else 0
        self.envs = SeededEnvs(
            source, seeds, num_envs, "eval_episode", workers=workers, timeout=plan.timeout, threads=threads
        )
        self.episode_limit = self.envs.spec.episode_limit
        self._grid = np.arange(size).reshape(len(seeds), num_envs)
        self._used = self._grid  # by seed, the rows of this batch: the last one may have fewer

    def guarded(self, guard: Guard) -> AbstractContextManager[object]:
        return guard(self.envs)

    def start(self, episodes: int, first_episode: int) -> None:
        """Start an episode in the first `episodes` environments of every seed."""
        self._used = self._grid[:, :episodes]
        self.envs.start_episode(first_episode, self._used.ravel().tolist())

    def obs(self) -> Tensor:
        obs = self.envs.obs.reshape(*self._grid.shape, *self.envs.obs.shape[1:])[:, : self._used.shape[1]]
        return torch.from_numpy(np.ascontiguousarray(obs))

    def step(self, actions: Tensor, active: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Step the active rows: their rewards, and whether they ended."""
        envs, used = self.envs, self._used
        chosen = actions.cpu().numpy()
        given, stepped = np.zeros((envs.size, *chosen.shape[2:]), chosen.dtype), np.zeros(envs.size, np.bool_)
        given[used], stepped[used] = chosen, active
        envs.step(given, stepped)
        return envs.rewards[used], (envs.terminated | envs.truncated)[used]

    def advance(self) -> None:
        self.envs.obs, self.envs.next_obs = self.envs.next_obs, self.envs.obs

    def infos(self) -> NDArray[Any]:
        return self.envs.infos[self._used]  # of each row's one episode: finished rows are not stepped

    def end(self) -> None:
        self.envs.end_episodes()

    def close(self) -> None:
        self.envs.close()


class _VectorRows:
    """The rows of an evaluation in a `VectorEnv`: a new one for each batch of episodes, since its seeds are fixed."""

    info_names = ()
    envs: VectorEnv | None = None

    def __init__(self, source: EnvSource, learner: Learner, plan: EvaluationPlan) -> None:
        self.source, self.learner = source, learner

    @property
    def episode_limit(self) -> int | None:
        return self._open.spec.episode_limit

    @property
    def _open(self) -> VectorEnv:
        assert self.envs is not None, "see `start`"
        return self.envs

    def guarded(self, guard: Guard) -> AbstractContextManager[object]:
        return nullcontext()

    def start(self, episodes: int, first_episode: int) -> None:
        """Make environments with other seeds than those of training."""
        seeds = [episode_seed(seed, "eval_episode", 0, first_episode) for seed in self.learner.seeds]
        self.envs = make_batched(self.source, seeds, episodes, self.learner.device)
        self.envs.reset_all()

    def obs(self) -> Tensor:
        return self._open.by_seed(self._open.obs)

    def step(self, actions: Tensor, active: NDArray[np.bool_]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Step all rows: their rewards, and whether they ended."""
        step = self._open.step(actions.flatten(0, 1))
        ended = step.terminated | step.truncated
        return step.rewards.cpu().numpy().reshape(active.shape), ended.cpu().numpy().reshape(active.shape)

    def advance(self) -> None:
        self._open.advance()

    def infos(self) -> NDArray[Any]:
        return np.zeros((len(self.learner.seeds), self._open.num_envs, 0))

    def end(self) -> None:
        self.close()

    def close(self) -> None:
        envs, self.envs = self.envs, None
        if envs is not None:
            envs.close()


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
