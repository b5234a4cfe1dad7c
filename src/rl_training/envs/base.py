"""The boundary between environments and loops: all rows at once, as tensors in host memory or on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from rl_training.core.specs import EnvSpec


class Step(NamedTuple):
    """What every environment answered to its action. The next step may write into the same tensors."""

    next_obs: Tensor  # (size, *shape): the true successors, also where an episode ended
    rewards: Tensor  # (size,) float32
    terminated: Tensor  # (size,) bool: in a terminal state
    truncated: Tensor  # (size,) bool: cut off, as by a time limit


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
        """Where every tensor of this environment lies, and where its actions must."""
        ...

    @property
    def obs(self) -> Tensor:
        """(size, *shape): what to act on now."""
        ...

    @property
    def next_obs(self) -> Tensor: ...

    @property
    def rewards(self) -> Tensor: ...

    @property
    def terminated(self) -> Tensor: ...

    @property
    def truncated(self) -> Tensor: ...

    def reset_all(self) -> None:
        """Start the episode that each row stands at."""
        ...

    def step(self, actions: Tensor) -> Step:
        """One step of every row; the result can be read from the attributes of the same names until the next one."""
        ...

    def advance(self) -> None:
        """Make the successors current, and start the next episode where one ended."""
        ...

    def close(self) -> None: ...

    def state(self) -> dict[str, Tensor]:
        """Everything that the following steps depend on, to be called after `advance`."""
        ...

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Return to a saved state; a state of other shapes or dtypes is rejected with a ValueError."""
        ...
