"""Hindsight experience replay: Andrychowicz et al., "Hindsight Experience Replay", 2017.

Transitions are stored as they happened. When a batch is drawn, n of every n + 1 rows get another desired goal, one that
was achieved in their own episode, and the reward of that goal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.config.settings import HindsightSettings
from rl_training.core.rng import stream
from rl_training.core.specs import EnvSpec
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.envs.host.goals import Goals

Array = NDArray[Any]
BOUND_BYTES = 16  # of a row: the first and the last step of its episode
OPEN = np.iinfo(np.int64).max  # the last step of an episode that continues


class HindsightReplay(ReplayBuffer):
    """A replay in host memory, which relabels batches there and copies them to `device`.

    `first` and `last` are the steps between which the episode of each row lies, where step t of an environment is its
    transition number t. They follow from the stored flags, so they are not saved. Of an episode that is still open, or
    whose start was overwritten, the stored steps count.
    """

    def __init__(
        self, spec: EnvSpec, *, goals: Goals, her: HindsightSettings, device: torch.device | str, **options: Any
    ) -> None:
        super().__init__(spec, device="cpu", **options)
        self.goals, self.her, self.batch_device = goals, her, torch.device(device)
        self.first = np.zeros((self.seeds, self.capacity), np.int64)
        self.last = np.full((self.seeds, self.capacity), OPEN)
        self._begun = np.zeros((self.seeds, self.num_envs), np.int64)  # the first steps of the open episodes
        achieved, desired = goals.achieved, goals.desired
        self._achieved, self._desired = slice(achieved.start, achieved.stop), slice(desired.start, desired.stop)

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.first.nbytes + self.last.nbytes

    # --- episodes --------------------------------------------------------------------------------------------------
    def add(self, **fields: Tensor | Array) -> None:
        rows, step = slice(self.head, self.head + self.num_envs), self.added // self.num_envs
        super().add(**fields)
        self.first[:, rows], self.last[:, rows] = self._begun, OPEN
        ended = self._arrays["terminated"][:, rows] | self._arrays["truncated"][:, rows]
        if ended.any():
            for seed, env in np.argwhere(ended):
                self._end(seed, env, step)

    def _end(self, seed: int, env: int, step: int) -> None:
        """End the open episode of an environment at a step."""
        steps = np.arange(max(self._begun[seed, env], self._oldest_step()), step + 1)
        self.last[seed, (steps * self.num_envs + env) % self.capacity] = step
        self._begun[seed, env] = step + 1

    def _oldest_step(self) -> int:
        return self.oldest() // self.num_envs

    def finish_writing(self, added: int) -> None:
        super().finish_writing(added)
        rows = self.places(self.oldest(), added).numpy()
        ends = (self._arrays["terminated"] | self._arrays["truncated"])[:, rows]
        ends = ends.reshape(self.seeds, -1, self.num_envs)
        steps = np.arange(self._oldest_step(), added // self.num_envs)[:, None]
        last = np.minimum.accumulate(np.where(ends, steps, OPEN)[:, ::-1], axis=1)[:, ::-1]
        begun = np.maximum.accumulate(np.where(ends, steps + 1, self._oldest_step()), axis=1)
        begun = np.concatenate([np.full_like(self._begun, self._oldest_step())[:, None], begun], axis=1)
        self.first[:, rows], self.last[:, rows] = (one.reshape(self.seeds, -1) for one in (begun[:, :-1], last))
        self._begun[:] = begun[:, -1]

    def cut_off(self, envs: Sequence[int]) -> list[tuple[int, int, int]]:
        last = super().cut_off(envs)
        for seed, env, _ in last:
            self._end(seed, env, self.added // self.num_envs - 1)
        return last

    # --- batches ---------------------------------------------------------------------------------------------------
    def gather(self, indices: Tensor) -> dict[str, Tensor]:
        found = super().gather(indices.to(self.device))
        return {name: tensor.to(self.batch_device) for name, tensor in found.items()}

    @property
    def relabelled(self) -> Any:
        return self._relabelled

    def _relabelled(self, indices: Tensor, seeds: Sequence[int], update: int) -> dict[str, Tensor]:
        """The batches (count, seeds, batch) of row numbers, the first rows of each with other goals."""
        batch = super().gather(indices)
        count = self.her.rows(indices.shape[-1])
        if count:
            drawn = [stream(seed, "hindsight", update).random((len(indices), count)) for seed in seeds]
            self._relabel(batch, indices[..., :count].numpy(), np.stack(drawn, 1), count)
        return {name: tensor.to(self.batch_device) for name, tensor in batch.items()}

    def _relabel(self, batch: dict[str, Tensor], rows: Array, uniforms: Array, count: int) -> None:
        """Change the first `count` rows of each batch in place; the goals of the rows follow from `uniforms`."""
        seed = np.arange(self.seeds)[:, None]
        goals = self._arrays["next_obs"][seed, self.goal_rows(rows, uniforms)][..., self._achieved]
        arrays = {name: tensor.numpy()[:, :, :count] for name, tensor in batch.items()}
        arrays["obs"][..., self._desired] = goals
        arrays["next_obs"][..., self._desired] = goals
        achieved = arrays["next_obs"][..., self._achieved]
        for one in range(self.seeds):  # one by one: a function of more rows may round differently
            pair = [array[:, one].reshape(-1, array.shape[-1]) for array in (achieved, goals)]
            arrays["rewards"][:, one] = self.goals.rewards(*pair).reshape(-1, count)
            terminated = self.goals.terminated(*pair)
            if terminated is not None:
                arrays["dones"][:, one] = terminated.reshape(-1, count)

    def goal_rows(self, rows: Array, uniforms: Array) -> Array:
        """The rows whose achieved goals replace the desired ones of `rows` (..., seeds, rows)."""
        seed, envs = np.arange(self.seeds)[:, None], rows % self.num_envs
        newest = self.added // self.num_envs - 1
        last = np.minimum(self.last[seed, rows], newest)
        if self.her.strategy == "final":
            first = last
        elif self.her.strategy == "episode":
            first = np.maximum(self.first[seed, rows], self._oldest_step())
        else:  # the step that is stored in this row
            first = newest - (self.added - 1 - rows) % self.capacity // self.num_envs
        steps = first + (uniforms * (last - first + 1)).astype(np.int64)
        return np.asarray((np.minimum(steps, last) * self.num_envs + envs) % self.capacity)


