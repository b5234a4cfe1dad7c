"""Gymnasium environments as a `VectorEnv`: their arrays as tensors that share memory."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.checkpoint.parts import Part
from rl_training.core.specs import EnvSpec
from rl_training.envs.base import Step
from rl_training.envs.environments_part import EnvironmentsPart
from rl_training.envs.host.episodes import EpisodeStatistics
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.spaces import ActionCodec, ObservationCodec


class HostEnvs:
    """A `VectorEnv` in host memory; `rows` steps the environments one by one."""

    device = torch.device("cpu")

    def __init__(self, rows: SeededEnvs) -> None:
        self.rows = rows
        self.seeds, self.num_envs, self.size = rows.seeds, rows.num_envs, rows.size
        self.part: Part = EnvironmentsPart(rows)
        # Made once for each array, since making a tensor takes longer than a step of a small environment.
        arrays = (rows.obs, rows.next_obs, rows.rewards, rows.terminated, rows.truncated)
        self._tensors = {id(array): torch.from_numpy(array) for array in arrays}
        self._by_seed = {id(tensor): self._view(tensor) for tensor in self._tensors.values()}

    @property
    def spec(self) -> EnvSpec:
        return self.rows.spec

    @property
    def statistics(self) -> EpisodeStatistics:
        return self.rows.statistics

    @property
    def obs(self) -> Tensor:
        return self._tensor(self.rows.obs)

    @property
    def codecs(self) -> tuple[ObservationCodec, ActionCodec]:
        return self.rows.observation, self.rows.action

    @property
    def can_restore(self) -> bool:
        return self.rows.can_restore

    @property
    def note(self) -> str | None:
        return self.rows.note

    @property
    def watched(self) -> SeededEnvs:
        return self.rows

    @property
    def lost(self) -> list[int]:
        return self.rows.lost

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        return self._tensors[id(array)]

    def _view(self, tensor: Tensor) -> Tensor:
        return tensor.view(len(self.seeds), self.num_envs, *tensor.shape[1:])

    def by_seed(self, tensor: Tensor) -> Tensor:
        """(size, ...) -> (seeds, num_envs, ...), of a tensor that this object returned."""
        return self._by_seed[id(tensor)]

    def reset_all(self) -> None:
        self.rows.reset_all()

    def step(self, actions: Tensor) -> Step:
        """One step of every row with `actions` (size, ...), which are copied to the host if needed."""
        rows, tensor = self.rows, self._tensor
        rows.step(actions.cpu().numpy())
        return Step(tensor(rows.next_obs), tensor(rows.rewards), tensor(rows.terminated), tensor(rows.truncated))

    def advance(self) -> None:
        self.rows.advance()

    def close(self) -> None:
        self.rows.close()
