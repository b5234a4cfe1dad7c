"""The base class of device environments: rows, seeded episodes, time limit, statistics and state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from rl_training.checkpoint.parts import Part
from rl_training.core.rng import STREAM_IDS
from rl_training.core.specs import EnvSpec
from rl_training.envs.base import Step
from rl_training.envs.device.part import DeviceEnvironmentsPart
from rl_training.envs.device.statistics import DeviceEpisodeStatistics
from rl_training.envs.host.factory import EnvSource, environment_codecs
from rl_training.envs.spaces import ActionCodec, ObservationCodec, codecs_of
from rl_training.tensors.device_rng import member_uniforms
from rl_training.tensors.state import check_tensors


class DeviceEnv(ABC):
    """A `VectorEnv` of batched tensor operations; a subclass defines the physics by three pure functions.

    Every tensor is changed in place, and nothing waits for the device: `step` and `advance` can be
    compiled and captured in a CUDA graph. An episode's start is a function of (run seed, environment, episode).
    """

    spec: ClassVar[EnvSpec]
    gymnasium_id: ClassVar[str | None] = None  # the same environment in Gymnasium, for evaluation and video
    num_draws: ClassVar[int]  # random numbers in the initial state of an episode

    @staticmethod
    @abstractmethod
    def initial(uniforms: Tensor) -> Tensor:
        """The initial physical state (rows, n) of an episode, from (rows, num_draws) numbers in (0, 1)."""

    @staticmethod
    @abstractmethod
    def transition(physics: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The next physical state (rows, n), the reward (rows,) and whether that state is terminal (rows,)."""

    @staticmethod
    @abstractmethod
    def observe(physics: Tensor) -> Tensor:
        """The observation of a physical state: (rows, *shape)."""

    def __init__(self, seeds: Sequence[int], num_envs: int, device: torch.device | str = "cpu") -> None:
        self.seeds, self.num_envs, self.device = tuple(seeds), num_envs, torch.device(device)
        self.size = len(self.seeds) * num_envs
        self._row_seeds = torch.tensor(self.seeds, device=self.device).repeat_interleave(num_envs)
        self._env_indices = torch.arange(num_envs, device=self.device).repeat(len(self.seeds))
        self.episodes = torch.zeros(self.size, dtype=torch.int64, device=self.device)
        self.steps = torch.zeros_like(self.episodes)  # of the open episode
        self.physics = self._initial_physics()
        self.next_physics = torch.zeros_like(self.physics)
        self.obs = self.observe(self.physics).clone()
        self.next_obs = torch.zeros_like(self.obs)
        self.rewards = torch.zeros(self.size, device=self.device)
        self.terminated = torch.zeros(self.size, dtype=torch.bool, device=self.device)
        self.truncated = torch.zeros_like(self.terminated)
        self.statistics = DeviceEpisodeStatistics(len(self.seeds), num_envs, self.device)
        self.part: Part = DeviceEnvironmentsPart(self)

    def _initial_physics(self) -> Tensor:
        """The initial state of the current episode of each row."""
        stream = STREAM_IDS["episode"]
        draws = member_uniforms(self._row_seeds, stream, self._env_indices, self.episodes, self.num_draws)
        return self.initial(draws)

    @cached_property
    def codecs(self) -> tuple[ObservationCodec, ActionCodec]:
        """Those of the twin, which has the same spaces; without one, those of its own spec."""
        if self.gymnasium_id is not None:
            return environment_codecs(EnvSource(self.gymnasium_id, masked=self.spec.observation.mask > 0))
        return codecs_of(self.spec)

    @property
    def can_restore(self) -> bool:
        return True

    @property
    def note(self) -> None:
        return None

    @property
    def watched(self) -> None:
        return None

    @property
    def lost(self) -> tuple[int, ...]:
        """Empty: a load restores every row."""
        return ()

    def by_seed(self, tensor: Tensor) -> Tensor:
        """(size, ...) -> (seeds, num_envs, ...)."""
        return tensor.view(len(self.seeds), self.num_envs, *tensor.shape[1:])

    @torch.no_grad()
    def reset_all(self) -> None:
        """Start the current episode of every row."""
        self.physics.copy_(self._initial_physics())
        self.obs.copy_(self.observe(self.physics))
        self.steps.zero_()
        self.statistics.drop_open_episodes()

    @torch.no_grad()
    def step(self, actions: Tensor) -> Step:
        """One step of every row with `actions` (size, *shape)."""
        expected = (self.size, *self.spec.action.shape)
        if tuple(actions.shape) != expected:  # would broadcast silently
            raise ValueError(f"actions must have shape {expected}, got {tuple(actions.shape)}")
        physics, rewards, terminated = self.transition(self.physics, actions)
        self.next_physics.copy_(physics)
        self.next_obs.copy_(self.observe(physics))
        self.rewards.copy_(rewards)
        self.terminated.copy_(terminated)
        self.steps.add_(1)
        if self.spec.episode_limit is not None:
            self.truncated.copy_(self.steps >= self.spec.episode_limit)
        self.statistics.count(self.rewards, self.steps, self.terminated | self.truncated)
        return Step(self.next_obs, self.rewards, self.terminated, self.truncated)

    @torch.no_grad()
    def advance(self) -> None:
        """Make the successors current, and start the next episode where one ended."""
        ended = self.terminated | self.truncated
        self.episodes.add_(ended)
        self.steps.masked_fill_(ended, 0)
        first = self._initial_physics()
        self.physics.copy_(_choose_rows(ended, first, self.next_physics))
        self.obs.copy_(_choose_rows(ended, self.observe(first), self.next_obs))

    def close(self) -> None:  # noqa: B027  (not for subclasses to write)
        """Nothing to close."""

    def _tensors(self) -> dict[str, Tensor]:
        own = {"physics": self.physics, "obs": self.obs, "steps": self.steps, "episodes": self.episodes}
        return {**own, **self.statistics.tensors()}

    def changed_tensors(self) -> list[Tensor]:
        """Every tensor that `step` and `advance` change."""
        step = [self.next_physics, self.next_obs, self.rewards, self.terminated, self.truncated]
        return [*self._tensors().values(), *step]

    def state(self) -> dict[str, Tensor]:
        """A copy of the state that later steps and metrics depend on; to be taken after `advance`."""
        return {name: tensor.clone() for name, tensor in self._tensors().items()}

    def check(self, state: Mapping[str, Tensor]) -> None:
        """Reject a state that this environment cannot have saved, with a ValueError of one line."""
        check_tensors(state, self._tensors(), "environment")
        for name, tensor in state.items():
            if not tensor.is_floating_point() and bool((tensor < 0).any()):
                raise ValueError(f"{name} must be >= 0")

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Restore a saved state; an invalid one is rejected before anything changes."""
        self.check(state)
        for name, tensor in self._tensors().items():
            tensor.copy_(state[name])


def _choose_rows(mask: Tensor, chosen: Tensor, other: Tensor) -> Tensor:
    """Rows of `chosen` where the mask is set, else of `other`."""
    return torch.where(mask.view(-1, *[1] * (chosen.dim() - 1)), chosen, other)
