"""The interface between environments and loops: all rows at once, as tensors in host memory or on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from rl_training.checkpoint.parts import Part
from rl_training.core.specs import EnvSpec
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.spaces import ActionCodec, ObservationCodec


class Step(NamedTuple):
    """The result of one step of every environment. The next step may write into the same tensors."""

    next_obs: Tensor  # (size, *shape): the true successors, also where an episode ended
    rewards: Tensor  # (size,) float32
    terminated: Tensor  # (size,) bool: in a terminal state
    truncated: Tensor  # (size,) bool: cut off, e.g. by a time limit


class Statistics(Protocol):
    """Returns and lengths of training episodes."""

    def rows(self) -> list[dict[str, Any]]:
        """Each seed's metrics. May wait for the device: for log intervals only."""
        ...


@runtime_checkable
class VectorEnv(Protocol):
    """`num_envs` environments for each run seed, stepped together: row = seed_index * num_envs + env_index.

    A loop calls `reset_all` once, then `step` and `advance` in turns. Actions are in the library's units.
    """

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def seeds(self) -> tuple[int, ...]: ...

    @property
    def num_envs(self) -> int:
        """Environments of one seed."""
        ...

    @property
    def size(self) -> int:
        """Environments of all seeds."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of every tensor of this environment."""
        ...

    @property
    def obs(self) -> Tensor:
        """(size, *shape): the current observations."""
        ...

    @property
    def codecs(self) -> tuple[ObservationCodec, ActionCodec]:
        """The translation of its observations and actions into Gymnasium's spaces, for the agent."""
        ...

    @property
    def statistics(self) -> Statistics: ...

    @property
    def part(self) -> Part:
        """Saves and loads the state that later steps depend on; to be used after `advance`."""
        ...

    @property
    def can_restore(self) -> bool:
        """Whether the state saved last is enough to resume exactly."""
        ...

    @property
    def note(self) -> str | None:
        """What the user should know about how it is run."""
        ...

    @property
    def watched(self) -> SeededEnvs | None:
        """The environments whose calls may hang; None on a device."""
        ...

    @property
    def lost(self) -> Sequence[int]:
        """Rows whose open episode a load could not restore; their next episode has started."""
        ...

    def by_seed(self, tensor: Tensor) -> Tensor:
        """(size, ...) -> (seeds, num_envs, ...), of a tensor of this environment."""
        ...

    def reset_all(self) -> None:
        """Start the current episode of every row."""
        ...

    def step(self, actions: Tensor) -> Step:
        """One step of every row with `actions` (size, ...)."""
        ...

    def advance(self) -> None:
        """Make the successors current, and start the next episode where one ended."""
        ...

    def close(self) -> None: ...
