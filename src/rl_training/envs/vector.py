"""Many environments stepped together: every episode seeded, no autoreset, the open episode's actions logged.

`step` gives the true successor of every action; `advance` then resets, with a seed, just the environments whose episode
ended. So there are no junk rows, and the state of an environment is (episode number, actions so far).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.core.rng import episode_seed
from rl_training.core.types import EnvShape
from rl_training.envs.factory import EnvSource
from rl_training.envs.spaces import ActionCodec, ObservationCodec, env_shape

Array = NDArray[Any]


class EnvironmentFailure(Exception):
    """An environment raised or returned something impossible; carries what reproduces it."""

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
        render_mode: str | None = None,
    ) -> None:
        self.seeds, self.num_envs, self.stream = tuple(seeds), num_envs, stream
        self.size = len(self.seeds) * num_envs
        self.envs = [source.make(render_mode) for _ in range(self.size)]
        self.observation = ObservationCodec(self.envs[0].observation_space)
        self.action = ActionCodec(self.envs[0].action_space)
        self.episodes = [first_episode] * self.size
        self.logs: list[list[Array]] = [[] for _ in range(self.size)]
        self.obs: Array = np.zeros((self.size, *self.observation.shape), self.observation.dtype)
        self.next_obs = np.zeros_like(self.obs)
        self.rewards = np.zeros(self.size, np.float32)
        self.terminated = np.zeros(self.size, np.bool_)
        self.truncated = np.zeros(self.size, np.bool_)

    @property
    def shape(self) -> EnvShape:
        return env_shape(self.observation, self.action)

    def reset_all(self) -> None:
        for row in range(self.size):
            self._reset(row)

    def step(self, actions: Array, active: Array | None = None) -> None:
        """Take one step in every (active) environment; results are in `next_obs`, `rewards`, `terminated`, `truncated`."""
        env_actions = self.action.to_env(actions)
        for row, env in enumerate(self.envs):
            if active is not None and not active[row]:
                continue
            action = env_actions[row]
            self.logs[row].append(action)
            try:
                obs, reward, terminated, truncated, _ = env.step(action)
                self.observation.encode(obs, self.next_obs[row])
                self.rewards[row] = reward
            except Exception as error:
                raise self._failure(row, f"step raised {type(error).__name__}: {error}") from error
            self.terminated[row], self.truncated[row] = terminated, truncated
        self._check_finite()

    def advance(self) -> None:
        """Make the successors current; start the next seeded episode where one ended."""
        self.obs, self.next_obs = self.next_obs, self.obs
        for row in np.flatnonzero(self.terminated | self.truncated):
            self.episodes[row] += 1
            self._reset(row)

    def snapshot(self) -> dict[str, Any]:
        """What it takes to stand here again: the open episode of every environment, and its observation as a check."""
        return {"episodes": list(self.episodes), "actions": [np.array(log) for log in self.logs], "obs": self.obs.copy()}

    def restore(self, snapshot: dict[str, Any]) -> bool:
        """Replay the open episodes. False if an environment did not come back to the same observation."""
        exact = True
        self.episodes = [int(episode) for episode in snapshot["episodes"]]
        for row in range(self.size):
            self._reset(row)
            try:
                for action in snapshot["actions"][row]:
                    action = action if action.ndim else action[()]
                    self.logs[row].append(action)
                    obs, *_ = self.envs[row].step(action)
                    self.observation.encode(obs, self.obs[row])
            except Exception as error:
                raise self._failure(row, f"step raised {type(error).__name__}: {error} while replaying") from error
            if self.obs[row].tobytes() != snapshot["obs"][row].tobytes():
                exact = False
                self.episodes[row] += 1
                self._reset(row)
        return exact

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _reset(self, row: int) -> None:
        seed = self.episode_seed(row)
        self.logs[row] = []
        try:
            obs, _ = self.envs[row].reset(seed=seed)
            self.observation.encode(obs, self.obs[row])
        except Exception as error:
            raise self._failure(row, f"reset raised {type(error).__name__}: {error}") from error

    def episode_seed(self, row: int) -> int:
        seed_index, env_index = divmod(row, self.num_envs)
        return episode_seed(self.seeds[seed_index], self.stream, env_index, self.episodes[row])

    def _check_finite(self) -> None:
        if np.isfinite(self.rewards).all() and (self.observation.is_image or np.isfinite(self.next_obs).all()):
            return
        for row in range(self.size):
            if not np.isfinite(self.rewards[row]):
                raise self._failure(row, f"step returned reward {self.rewards[row]}")
            if not np.isfinite(self.next_obs[row]).all():
                raise self._failure(row, "step returned an observation with NaN or infinity")

    def _failure(self, row: int, what: str) -> EnvironmentFailure:
        seed_index, env_index = divmod(row, self.num_envs)
        report = {
            "what": what,
            "run_seed": self.seeds[seed_index],
            "env_index": env_index,
            "episode": self.episodes[row],
            "reset_seed": self.episode_seed(row),
            "actions": [np.asarray(action).tolist() for action in self.logs[row]],
        }
        where = f"environment {env_index} of seed {self.seeds[seed_index]}, episode {self.episodes[row]}"
        return EnvironmentFailure(f"{where}, step {len(self.logs[row])}: {what}", report)
