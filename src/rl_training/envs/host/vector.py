"""Environments stepped together: every episode seeded, no autoreset, the actions of open episodes logged.

`step` returns the true successor of every action; `advance` then resets, with a seed, only the environments whose
episode ended. So there are no invalid rows, and the state of an environment is (episode number, actions so far). It is
stored here; a `Stepper` steps the environments, in this process, its threads or in workers, with the same results.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from rl_training.core.rng import episode_seed
from rl_training.core.specs import EnvSpec
from rl_training.envs.host.changes import Changes, plain_changes
from rl_training.envs.host.episodes import EpisodeStatistics
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.mujoco.registry import threaded_task
from rl_training.envs.host.mujoco.stepper import ThreadedStepper
from rl_training.envs.host.stepping import Array, LocalStepper, Results, RowsFailed, Start, Stepper
from rl_training.envs.host.workers import CannotUseWorkers, WorkerStepper

MAX_LOG = 100_000  # logged actions of an open episode, for each environment


class EnvironmentFailure(Exception):
    """An environment raised an exception or returned an invalid value; `report` reproduces it."""

    def __init__(self, message: str, report: dict[str, Any]) -> None:
        super().__init__(message)
        self.report = report


class SeededEnvs:
    """`num_envs` environments for each run seed, in the order seed-major: row = seed_index * num_envs + env_index."""

    def __init__(
        self,
        source: EnvSource,
        seeds: Sequence[int],
        num_envs: int,
        stream: str = "episode",
        first_episode: int = 0,
        workers: int = 0,
        timeout: float = 300.0,
        threads: int = 0,
    ) -> None:
        self.seeds, self.num_envs, self.stream = tuple(seeds), num_envs, stream
        self.size = len(self.seeds) * num_envs
        self.timeout = timeout  # seconds a step may take
        self.busy_since: float | None = None  # when the step in progress began
        self.note: str | None = None  # why configured workers are not used
        self.stepper = self._make_stepper(source, workers, timeout, threads)
        self.observation, self.action = self.stepper.observation, self.stepper.action
        self.episodes = [first_episode] * self.size
        self.statistics = EpisodeStatistics(len(self.seeds), num_envs, source.info_metrics)
        self.lost: list[int] = []  # rows whose open episode `restore` could not restore
        self.logs: list[list[Array]] = [[] for _ in range(self.size)]
        self.unlogged: set[int] = set()  # rows whose episode became too long to log
        self.can_restore = True  # whether the last snapshot can be restored
        self.obs: Array = np.zeros((self.size, *self.observation.shape), self.observation.dtype)
        self.next_obs = np.zeros_like(self.obs)
        self.rewards = np.zeros(self.size, np.float32)
        self.terminated = np.zeros(self.size, np.bool_)
        self.truncated = np.zeros(self.size, np.bool_)
        self.infos = np.full((self.size, len(source.info_metrics)), np.nan)
        self.changes: Changes = {}  # for the episodes that start from now on
        self.row_changes: list[Changes] = [{}] * self.size  # in the open episode of each row

    @property
    def spec(self) -> EnvSpec:
        return self.stepper.spec

    def _make_stepper(self, source: EnvSource, workers: int, timeout: float, threads: int) -> Stepper:
        if threads and self.size > 1 and threaded_task(source) is not None:
            return ThreadedStepper(source, self.size, threads)
        if workers > 1:  # this process is the first
            try:
                return WorkerStepper(source, self.size, workers, timeout)
            except CannotUseWorkers as why:
                self.note = f"environment {source.env_id!r} runs in this process, without workers: {why}"
        return LocalStepper(source, self.size)

    def reset_all(self) -> None:
        """Start the current episode of every row."""
        self._start_changed(range(self.size))

    def start_episode(self, episode: int, rows: Sequence[int]) -> None:
        """Start the episode of this number in each of these rows, whatever they played before."""
        for row in rows:
            self.episodes[row] = episode
        self.infos[rows] = np.nan
        self._start_changed(rows)

    def end_episodes(self) -> None:
        """Forget the actions of all episodes; the next call must start new ones."""
        self.logs, self.unlogged = [[] for _ in range(self.size)], set()

    def change(self, changes: Changes) -> None:
        """Change attributes of every environment, each at its next reset; an episode without a step is reset again."""
        changes = plain_changes({**self.changes, **changes})
        if changes == self.changes:
            return
        self.stepper.check_changes(changes)
        self.changes = changes
        self._start_changed([row for row, log in enumerate(self.logs) if not log and row not in self.unlogged])

    def _start_changed(self, rows: Sequence[int]) -> None:
        """Start the current episodes of `rows` with the newest changes."""
        for row in rows:
            self.row_changes[row] = self.changes
        self._start(rows)

    def step(self, actions: Array, active: Array | None = None) -> None:
        """One step in every (active) environment; results in `next_obs`, `rewards`, `terminated`, `truncated`."""
        env_actions = self.action.to_env(actions)
        for log, action, acts in zip(self.logs, env_actions, repeat(True) if active is None else active, strict=False):
            if acts:
                log.append(action)
                if len(log) > MAX_LOG:
                    self._drop_long_logs()
        self.busy_since = time.monotonic()
        try:
            results = Results(self.next_obs, self.rewards, self.terminated, self.truncated, self.infos)
            self.stepper.step(env_actions, active, results)
        except RowsFailed as failed:
            raise self._failure(failed) from failed.__cause__
        finally:
            self.busy_since = None
        self._check_finite()

    def advance(self) -> None:
        """Make the successors current; start the next seeded episode where one ended."""
        ended = self.terminated | self.truncated
        self.statistics.count(self.rewards, ended, self.infos)
        self.obs, self.next_obs = self.next_obs, self.obs
        if ended.any():
            self._start_next(np.flatnonzero(ended).tolist())

    def _drop_long_logs(self) -> None:
        """Drop logs beyond MAX_LOG: an endless episode would fill the memory."""
        self.unlogged |= {row for row, log in enumerate(self.logs) if len(log) > MAX_LOG}
        for row in self.unlogged:
            self.logs[row] = []

    def snapshot(self) -> dict[str, Any]:
        """The state of all environments: native states where there are some, else the actions to replay."""
        states = self.stepper.states()
        self.can_restore = all(len(states[row]) for row in self.unlogged)
        return {
            "episodes": list(self.episodes),
            "unlogged": sorted(self.unlogged),
            "actions": [np.array([] if row in self.unlogged else log) for row, log in enumerate(self.logs)],
            "states": states,
            "obs": self.obs.copy(),
            "changes": self.changes,
            "row_changes": list(self.row_changes) if any(self.row_changes) else [],
        }

    def restore(self, snapshot: dict[str, Any]) -> bool:
        """Restore a snapshot. False if an environment could not be restored; its next episode starts then."""
        self.episodes = [int(episode) for episode in snapshot["episodes"]]
        self.changes, self.row_changes = snapshot["changes"], list(snapshot["row_changes"]) or [{}] * self.size
        native = [row for row in range(self.size) if len(snapshot["states"][row])]
        replayed = [row for row in range(self.size) if row not in native]
        self._start(native)
        arrived = self.stepper.set_states(native, [snapshot["states"][row] for row in native])
        for row in native:
            self.logs[row], self.obs[row] = list(snapshot["actions"][row]), snapshot["obs"][row]
        self._start(replayed, [snapshot["actions"][row] for row in replayed])
        unlogged = set(snapshot["unlogged"])
        self.lost = [row for row, exact in zip(native, arrived, strict=True) if not exact]
        self.lost += [
            row for row in replayed if row in unlogged or self.obs[row].tobytes() != snapshot["obs"][row].tobytes()
        ]
        self.unlogged = unlogged & set(native)
        self._start_next(self.lost)
        return not self.lost

    def close(self) -> None:
        self.stepper.close()

    def _start_next(self, rows: Sequence[int]) -> None:
        for row in rows:
            self.episodes[row] += 1
        self._start_changed(rows)

    def _start(self, rows: Sequence[int], histories: Sequence[Array] | None = None) -> None:
        """Start the current episodes of `rows` with their changes, and replay their histories."""
        self.unlogged.difference_update(rows)
        for position, row in enumerate(rows):
            self.logs[row] = [] if histories is None else list(histories[position])
        past = [None] * len(rows) if histories is None else histories
        starts = {
            row: Start(self.episode_seed(row), log, self.row_changes[row]) for row, log in zip(rows, past, strict=True)
        }
        self.busy_since = time.monotonic()
        try:
            self.stepper.start(starts, self.obs)
        except RowsFailed as failed:
            raise self._failure(failed) from failed.__cause__
        finally:
            self.busy_since = None
        numbers = self.observation.numbers(self.obs)
        if numbers is not None and not np.isfinite(numbers[list(rows)]).all():
            row = next(row for row in rows if not np.isfinite(numbers[row]).all())
            raise self._nonfinite("reset", row, self.obs)

    def episode_seed(self, row: int) -> int:
        """The seed of the current episode of a row."""
        seed_index, env_index = divmod(row, self.num_envs)
        return episode_seed(self.seeds[seed_index], self.stream, env_index, self.episodes[row])

    def timeout_failure(self) -> EnvironmentFailure:
        """The failure to report when a step or a reset does not return."""
        return self._failure(RowsFailed(range(self.size), f"no answer for {self.timeout:g} s"))

    def _check_finite(self) -> None:
        numbers = self.observation.numbers(self.next_obs)
        if np.isfinite(self.rewards).all() and (numbers is None or np.isfinite(numbers).all()):
            return
        for row in range(self.size):
            if not np.isfinite(self.rewards[row]):
                raise self._failure(RowsFailed([row], f"step returned reward {self.rewards[row]}"))
            if numbers is not None and not np.isfinite(numbers[row]).all():
                raise self._nonfinite("step", row, self.next_obs)

    def _nonfinite(self, call: str, row: int, obs: Array) -> EnvironmentFailure:
        entry = self.observation.nonfinite_entry(obs[row])
        return self._failure(RowsFailed([row], f"{call} returned an observation with NaN or infinity{entry}"))

    def _failure(self, failed: RowsFailed) -> EnvironmentFailure:
        if failed.steps is not None:
            self.logs[failed.rows[0]] = self.logs[failed.rows[0]][: failed.steps]
        open_episodes = [self._open_episode(row) for row in failed.rows]
        report: dict[str, Any] = {"what": failed.what}
        if failed.exit_code is not None:
            report["exit_code"] = failed.exit_code
        if len(failed.rows) == 1:
            row, episode = failed.rows[0], open_episodes[0]
            report |= episode
            step = f"beyond {MAX_LOG}" if row in self.unlogged else len(self.logs[row])
            where = f"{self._name(row)}, episode {episode['episode']}, step {step}"
        else:
            report["environments"] = open_episodes
            where = "; ".join(self._name(row) for row in failed.rows)
        return EnvironmentFailure(f"{where}: {failed.what}", report)

    def _name(self, row: int) -> str:
        seed_index, env_index = divmod(row, self.num_envs)
        return f"environment {env_index} of seed {self.seeds[seed_index]}"

    def _open_episode(self, row: int) -> dict[str, Any]:
        seed_index, env_index = divmod(row, self.num_envs)
        return {
            "run_seed": self.seeds[seed_index],
            "env_index": env_index,
            "episode": self.episodes[row],
            "reset_seed": self.episode_seed(row),
            **({"changes": self.row_changes[row]} if self.row_changes[row] else {}),
            # Null: an episode this long is not logged, and cannot be reproduced.
            "actions": None if row in self.unlogged else [np.asarray(action).tolist() for action in self.logs[row]],
        }
