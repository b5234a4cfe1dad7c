"""Rows of environments stepped in this process, without episodes, logs or run seeds."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import one_line
from rl_training.core.specs import EnvSpec
from rl_training.envs.episode_metrics import info_number
from rl_training.envs.host.changes import Changes, apply_changes, check_changes
from rl_training.envs.host.factory import Env, EnvSource
from rl_training.envs.host.masks import InvalidMask, newest_mask
from rl_training.envs.host.snapshots import native_state, restore_native
from rl_training.envs.host.wrappers import episode_limit, image_stack
from rl_training.envs.spaces import ActionCodec, ObservationCodec, env_spec, make_codecs

Array = NDArray[Any]


class RowsFailed(Exception):
    """Environments that raised or whose process died. `steps`: replayed actions, including the one that raised."""

    def __init__(self, rows: Sequence[int], what: str, steps: int | None = None, exit_code: int | None = None) -> None:
        super().__init__(what)
        self.rows, self.what, self.steps, self.exit_code = list(rows), what, steps, exit_code


class Start(NamedTuple):
    """The start of a row's episode: its seed, the actions to replay, and the changes of its environment."""

    seed: int
    history: Array | None = None
    changes: Changes | None = None


class Results(NamedTuple):
    """Arrays that a step writes into: a row for each environment."""

    obs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    infos: Array  # (rows, names) float64: numbers from the info of an episode's last step, else NaN


class Stepper(Protocol):
    """Steps rows of environments, without episodes, logs or run seeds."""

    observation: ObservationCodec
    action: ActionCodec
    spec: EnvSpec

    def start(self, starts: Mapping[int, Start], obs: Array) -> None:
        """Start an episode in each of these rows, and write its observation into `obs`."""

    def step(self, actions: Array, active: Array | None, results: Results) -> None:
        """One step in every (active) row; the other rows of the results are left as they are."""

    def check_changes(self, changes: Changes) -> None:
        """Reject changes that the environments cannot take."""

    def states(self) -> list[Array]:
        """The native state of every row as bytes; empty where there is none."""

    def set_states(self, rows: Sequence[int], states: Sequence[Array]) -> list[bool]:
        """Restore native states in freshly started rows; returns which of them are exact."""

    def close(self) -> None: ...


class LocalStepper:
    """Steps its environments in this process."""

    def __init__(self, source: EnvSource, size: int) -> None:
        self.source = source
        self.envs = [source.make() for _ in range(size)]
        self.used = [False] * size
        spaces = self.envs[0].observation_space, self.envs[0].action_space
        self.observation, self.action = make_codecs(*spaces, masked=source.masked)
        frames, limit = image_stack(self.envs[0]), episode_limit(self.envs[0])
        self.spec = env_spec(self.observation, self.action, frames, limit)

    def start(self, starts: Mapping[int, Start], obs: Array) -> None:
        for row, start in starts.items():
            call, steps = "make", 0
            try:
                env = self._env_for_episode(row)
                if start.changes:
                    call = f"changing {', '.join(start.changes)}"
                    apply_changes(env, start.changes)
                call = "reset"
                value, info = env.reset(seed=start.seed)
                self.observation.encode(value, obs[row], self._mask(env, info))
                for action in () if start.history is None else start.history:
                    steps += 1
                    value, _, terminal, cut, info = env.step(action.copy())
                    self.observation.encode(value, obs[row], self._mask(env, info, terminal or cut))
            except Exception as error:
                call, when = ("step", " while replaying") if steps else (call, "")
                raise RowsFailed([row], f"{describe_failure(call, error)}{when}", steps) from error

    def _mask(self, env: Env, info: Any, ended: bool = False) -> Array | None:
        """The action mask of the newest observation, where it is part of it."""
        return newest_mask(env, info, self.action.spec, ended) if self.source.masked else None

    def _env_for_episode(self, row: int) -> Env:
        """The row's environment, rebuilt if it carries state from one episode to the next."""
        if self.used[row] and self.source.restore == "rebuilt":
            self.envs[row].close()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # shown when the first one was made
                self.envs[row] = self.source.make()
        self.used[row] = True
        return self.envs[row]

    def check_changes(self, changes: Changes) -> None:
        check_changes(self.envs[0], changes, self.source.env_id)

    def step(self, actions: Array, active: Array | None, results: Results) -> None:
        obs, rewards, terminated, truncated, infos = results
        encode, names, masked = self.observation.encode, self.source.info_metrics, self.source.masked
        for row, env in enumerate(self.envs):
            if active is not None and not active[row]:
                continue
            try:
                # A copy: the parent's log of actions must survive an environment that writes into its argument.
                value, reward, terminal, cut, info = env.step(actions[row].copy())
                terminated[row], truncated[row] = terminal, cut
                encode(value, obs[row], self._mask(env, info, terminal or cut) if masked else None)
                rewards[row] = reward
                if names and (terminal or cut):
                    infos[row] = [info_number(info, name) for name in names]
            except Exception as error:
                raise RowsFailed([row], describe_failure("step", error)) from error

    def states(self) -> list[Array]:
        if self.source.restore in ("replay", "rebuilt"):  # a native state, if there is one, is not the whole state
            return [np.empty(0, np.uint8) for _ in self.envs]
        found = [native_state(env) for env in self.envs]
        return [np.empty(0, np.uint8) if state is None else state for state in found]

    def set_states(self, rows: Sequence[int], states: Sequence[Array]) -> list[bool]:
        return [_restores(self.envs[row], state) for row, state in zip(rows, states, strict=True)]

    def close(self) -> None:
        for env in self.envs:
            env.close()


def describe_failure(call: str, error: Exception) -> str:
    """What went wrong in a call of an environment, in one line."""
    if isinstance(error, InvalidMask):
        return f"{call} {error}"
    return f"{call} raised {type(error).__name__}: {one_line(error)}"


def _restores(env: Env, state: Array) -> bool:
    try:
        return restore_native(env, state)
    except Exception:  # a state of another version or model: the caller restarts the episode and reports it
        return False
